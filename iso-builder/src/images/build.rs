//! Builds all images of a definition, from unpacked packages into a store.

use std::collections::HashMap;
use std::collections::hash_map;
use std::path::PathBuf;

use anyhow::{Context, Result};
use base::failure::{Class, Failure};

use super::contents::LayerContents;
use super::image::{self};
use super::layer::{self, ImageLayer};
use super::spec::{BuiltImage, LayerSpec};
use super::store::Store;
use super::stored_image::StoredImage;

/// Settings that all images of a build share.
#[derive(Clone, Copy, Debug)]
pub struct ImageSettings<'a> {
    /// The architecture as Go calls it; for `amd64` and `arm64` that is Debian's name.
    pub architecture: &'a str,
    /// The time of files and images, in seconds since 1970.
    pub epoch: u64,
}

/// Builds `specs` into `store`. `unpacked` returns the tar file of a layer's packages, as
/// [`packages::extract`](super::packages::extract) makes it, and is called once for each list of packages. Images that
/// begin with the same lists share these layers. [`Store::finish`] writes the index.
pub fn build(
    specs: &[&BuiltImage],
    settings: ImageSettings<'_>,
    store: &Store,
    unpacked: &mut dyn FnMut(&LayerSpec) -> Result<PathBuf>,
) -> Result<Vec<StoredImage>> {
    for (index, spec) in specs.iter().enumerate() {
        if specs.iter().skip(index + 1).any(|other| other.name == spec.name) {
            let failure = Failure::new(Class::Invalid, format!("two images are called {}", spec.name));
            return Err(failure.hint("Give each image a name or a tag of its own.").into());
        }
    }
    let mut layers = Layers { settings, store, unpacked, sources: HashMap::new(), built: HashMap::new() };
    let image = |spec: &&BuiltImage| {
        let stack =
            layers.stack(&spec.layers).with_context(|| format!("building the image {}", spec.name))?;
        image::write(spec, &stack, settings.architecture, settings.epoch, store)
    };
    specs.iter().map(image).collect()
}

/// Layers that are built already, so that none is built twice.
struct Layers<'a> {
    settings: ImageSettings<'a>,
    store: &'a Store,
    unpacked: &'a mut dyn FnMut(&LayerSpec) -> Result<PathBuf>,
    sources: HashMap<LayerSpec, (PathBuf, LayerContents)>,
    /// By the layer and all below it.
    built: HashMap<Vec<LayerSpec>, ImageLayer>,
}

impl Layers<'_> {
    fn stack(&mut self, specs: &[LayerSpec]) -> Result<Vec<ImageLayer>> {
        let mut lower = LayerContents::default();
        let mut stack = Vec::new();
        for (index, spec) in specs.iter().enumerate() {
            let (tar, contents) = match self.sources.entry(spec.clone()) {
                hash_map::Entry::Occupied(known) => known.into_mut(),
                hash_map::Entry::Vacant(new) => {
                    let tar = (self.unpacked)(spec)?;
                    let contents = LayerContents::scan(&tar)?;
                    new.insert((tar, contents))
                }
            };
            let layer = match self.built.entry(specs.iter().take(index + 1).cloned().collect()) {
                hash_map::Entry::Occupied(known) => *known.get(),
                hash_map::Entry::Vacant(new) => {
                    *new.insert(layer::write(tar, contents, &lower, self.settings.epoch, self.store)?)
                }
            };
            stack.push(layer);
            lower = lower.under(contents);
        }
        Ok(stack)
    }
}

#[cfg(test)]
mod tests {
    use super::super::spec::{PreloadEntry, PreloadSource};
    use super::*;
    use std::fs::File;
    use std::path::Path;

    fn spec(name: &str, layers: &[&str]) -> BuiltImage {
        let layers: Vec<_> =
            layers.iter().map(|package| serde_json::json!({ "packages": [package] })).collect();
        let entry: PreloadEntry =
            serde_json::from_value(serde_json::json!({ "name": name, "layers": layers })).unwrap();
        let PreloadSource::Built(image) = entry.source else { panic!("{name}") };
        image
    }

    /// A tar file with one file that is named after the package.
    fn unpack(directory: &Path, layer: &LayerSpec) -> PathBuf {
        let name = layer.packages[0].as_str();
        let path = directory.join(name);
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(0);
        let mut builder = tar::Builder::new(File::create(&path).unwrap());
        builder.append_data(&mut header, name, std::io::empty()).unwrap();
        builder.finish().unwrap();
        path
    }

    #[test]
    fn equal_first_layers_are_unpacked_and_stored_once() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::create(&directory.path().join("store")).unwrap();
        let mut asked = Vec::new();
        let specs = [spec("localhost/a:1", &["base", "tools"]), spec("localhost/b:1", &["base", "other"])];
        let settings = ImageSettings { architecture: "amd64", epoch: 0 };
        let images = build(&specs.each_ref(), settings, &store, &mut |layer| {
            asked.push(layer.packages[0].to_string());
            Ok(unpack(directory.path(), layer))
        })
        .unwrap();
        assert_eq!(asked, ["base", "tools", "other"]);
        assert_eq!(images[0].layers[0], images[1].layers[0]);
        assert_ne!(images[0].layers[1], images[1].layers[1]);
    }

    #[test]
    fn two_images_of_one_name_are_refused_before_anything_is_unpacked() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::create(&directory.path().join("store")).unwrap();
        let specs = [spec("localhost/a:1", &["base"]), spec("localhost/a:1", &["other"])];
        let settings = ImageSettings { architecture: "amd64", epoch: 0 };
        let error =
            build(&specs.each_ref(), settings, &store, &mut |_| panic!("asked for packages")).unwrap_err();
        assert_eq!(base::failure::class_of(&error), Class::Invalid);
    }
}

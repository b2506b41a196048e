//! The shape of an install configuration, made from its types.

use std::sync::LazyLock;

use document::shape::inline_schema;
pub use document::shape::{Shape, snake};

use super::InstallConfig;
use super::formats::FORMATS;

/// The shape of an install configuration.
pub fn install_config() -> &'static Shape {
    static SHAPE: LazyLock<Shape> = LazyLock::new(|| Shape::of(&inline_schema::<InstallConfig>(), FORMATS));
    &SHAPE
}

#[cfg(test)]
mod tests {
    use document::shape::{camel, join};

    use super::*;

    fn at<'a>(shape: &'a Shape, path: &str) -> &'a Shape {
        path.split('.').fold(shape, |shape, key| match shape {
            Shape::Record(keys, _) => &keys.iter().find(|(name, _)| name == key).unwrap().1,
            other => panic!("{key} of {other:?}"),
        })
    }

    #[test]
    fn the_shape_says_what_the_types_say() {
        let shape = install_config();
        assert!(
            matches!(at(shape, "token"), Shape::Text { secret: true, format: Some(f) } if f.name == "token")
        );
        assert!(
            matches!(at(shape, "os.hostname"), Shape::Text { format: Some(f), .. } if f.name == "hostname")
        );
        assert!(matches!(at(shape, "os.sysctls"), Shape::Dictionary { keys: Some(_), .. }));
        assert!(matches!(at(shape, "install.automatic"), Shape::Truth));
        assert!(matches!(
            at(shape, "install.management_interface.vlan_id"),
            Shape::Number { least: 0, most: 4094 }
        ));
        assert!(matches!(at(shape, "install.management_interface.ip"), Shape::Text { format: Some(_), .. }));
        assert!(
            matches!(at(shape, "install.mode"), Shape::Choice { words, .. } if words == &["create", "join", "install"])
        );
        let Shape::Text { format: Some(size), .. } = at(shape, "install.persistent_partition_size") else {
            panic!()
        };
        assert_eq!(size.name, "byte-size");
    }

    #[test]
    fn every_text_of_the_document_has_a_format() {
        fn texts(shape: &Shape, path: &str) {
            match shape {
                Shape::Record(keys, _) => keys.iter().for_each(|(key, shape)| texts(shape, &join(path, key))),
                Shape::Dictionary { keys, values } => {
                    assert!(keys.is_some(), "{path}");
                    texts(values, path);
                }
                Shape::List(item) => texts(item, path),
                Shape::Either(shapes) => shapes.iter().for_each(|shape| texts(shape, path)),
                Shape::Text { format, .. } => assert!(format.is_some(), "{path} accepts any text"),
                _ => {}
            }
        }
        texts(install_config(), "");
    }

    #[test]
    fn both_spellings_and_all_places_of_a_key_are_known() {
        assert_eq!(camel("ssh_authorized_keys"), "sshAuthorizedKeys");
        assert_eq!(install_config().places("hostname"), ["os.hostname"]);
        assert_eq!(
            install_config().places("hw_addr"),
            [
                "install.management_interface.interfaces[].hw_addr",
                "os.host.sriov[].hw_addr",
                "install.network_disks.cards[].interface.hw_addr",
                "install.networks[].interfaces[].hw_addr",
            ]
        );
    }
}

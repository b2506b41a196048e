//! Finds the places where objects of a cluster name container images: a pure walk over their trees.
//!
//! Pods are recognised by their shape, wherever they are, so that workloads of every kind are covered, and custom
//! resources that contain pods as well. An image that a custom resource names in its own way, or that an operator
//! starts by itself, has to be named in an annotation, [`ANNOTATION`].

use serde_json::{Map, Value};

/// The annotation that lists further images of an object, separated by white space.
pub const ANNOTATION: &str = "nqrust.io/images";

/// A place in an object that names an image.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ImagePlace {
    /// The path in the object: `spec.template.spec.containers[0].image`.
    pub(super) field: String,
    pub(super) text: String,
}

/// The places in an object that name images. Custom resource definitions have none: they hold schemas of pods, not
/// pods.
pub(super) fn places(object: &Value) -> Vec<ImagePlace> {
    let mut places = Vec::new();
    if kind(object) != "CustomResourceDefinition" {
        walk(object, "", &mut places);
    }
    places
}

/// The object's kind, empty where it has none.
pub(super) fn kind(object: &Value) -> &str {
    object["kind"].as_str().unwrap_or_default()
}

/// The objects that a document holds: itself, or those of a list, in the order of the document.
pub(super) fn objects(document: &Value) -> Vec<&Value> {
    match document["items"].as_array() {
        Some(items) if kind(document).ends_with("List") => items.iter().flat_map(objects).collect(),
        _ => vec![document],
    }
}

pub(super) fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][name].as_str()
}

/// The name of an object in messages: `Deployment default/web`.
pub(super) fn title(object: &Value) -> String {
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().or(metadata["generateName"].as_str()).unwrap_or("without a name");
    // Objects in a list need not repeat its kind.
    let kind = Some(kind(object)).filter(|kind| !kind.is_empty()).unwrap_or("Object");
    match metadata["namespace"].as_str() {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    }
}

fn walk(value: &Value, path: &str, places: &mut Vec<ImagePlace>) {
    match value {
        Value::Object(map) => {
            for (key, child) in map {
                let path = join(path, key);
                look(key, child, &path, places);
                walk(child, &path, places);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                walk(item, &format!("{path}[{index}]"), places);
            }
        }
        _ => {}
    }
}

/// Examines one key and its value, without going deeper than the shape that it recognises.
fn look(key: &str, value: &Value, path: &str, places: &mut Vec<ImagePlace>) {
    let mut add = |map: Option<&Value>, name: &str, path: String| {
        if let Some(text) = map.and_then(|map| map.get(name)).and_then(text) {
            places.push(ImagePlace { field: format!("{path}.{name}"), text });
        }
    };
    match (key, value) {
        ("containers" | "initContainers" | "ephemeralContainers", Value::Array(items)) => {
            for (index, item) in items.iter().enumerate() {
                add(Some(item), "image", format!("{path}[{index}]"));
            }
        }
        // Disks of virtual machines from images, and volumes of pods that are images.
        ("volumes", Value::Array(items)) => {
            for (index, item) in items.iter().enumerate() {
                add(item.get("containerDisk"), "image", format!("{path}[{index}].containerDisk"));
                add(item.get("image"), "reference", format!("{path}[{index}].image"));
            }
        }
        // The kernel of a virtual machine.
        ("kernelBoot", Value::Object(boot)) => {
            add(boot.get("container"), "image", format!("{path}.container"))
        }
        ("annotations", Value::Object(map)) => listed(map, path, places),
        // A disk that a node's containerd pulls for the importer; otherwise the importer asks the registry itself.
        ("registry", Value::Object(map)) if map.get("pullMethod").is_some_and(|method| method == "node") => {
            let url = map.get("url").and_then(Value::as_str).unwrap_or_default();
            let text = url.strip_prefix("docker://").unwrap_or(url).to_owned();
            places.push(ImagePlace { field: format!("{path}.url"), text });
        }
        _ => {}
    }
}

fn listed(annotations: &Map<String, Value>, path: &str, places: &mut Vec<ImagePlace>) {
    let list = annotations.get(ANNOTATION).and_then(Value::as_str).unwrap_or_default();
    let field = join(path, ANNOTATION);
    places.extend(
        list.split_whitespace().map(|text| ImagePlace { field: field.clone(), text: text.to_owned() }),
    );
}

/// The value that stands in the place of a name: null is an empty name; a map or list is not a name at all.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Null => Some(String::new()),
        // Marked, so that a number or boolean is not taken for a name.
        Value::Number(_) | Value::Bool(_) => Some(format!("={value}")),
        Value::Array(_) | Value::Object(_) => None,
    }
}

fn join(path: &str, key: &str) -> String {
    let plain = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    match (plain, path) {
        (true, "") => key.to_owned(),
        (true, _) => format!("{path}.{key}"),
        (false, _) => format!("{path}[{key:?}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn found(yaml: &str) -> Vec<(String, String)> {
        let value: Value = serde_saphyr::from_str(yaml).unwrap();
        places(&value).into_iter().map(|place| (place.field, place.text)).collect()
    }

    #[test]
    fn every_kind_of_workload_tells_its_images() {
        let spec = "{initContainers: [{image: i}], containers: [{name: x, image: a}, {image: b}], ephemeralContainers: [{image: e}]}";
        for (kind, before, path) in [
            ("Pod", "spec: ", "spec"),
            ("PodTemplate", "template: {spec: ", "template.spec"),
            ("Deployment", "spec: {template: {spec: ", "spec.template.spec"),
            ("StatefulSet", "spec: {template: {spec: ", "spec.template.spec"),
            ("DaemonSet", "spec: {template: {spec: ", "spec.template.spec"),
            ("ReplicaSet", "spec: {template: {spec: ", "spec.template.spec"),
            ("ReplicationController", "spec: {template: {spec: ", "spec.template.spec"),
            ("Job", "spec: {template: {spec: ", "spec.template.spec"),
            (
                "CronJob",
                "spec: {jobTemplate: {spec: {template: {spec: ",
                "spec.jobTemplate.spec.template.spec",
            ),
            ("ACustomResource", "spec: {pods: [{spec: ", "spec.pods[0].spec"),
        ] {
            let opened = |bracket| before.matches(bracket).count();
            let close = if opened('[') == 1 { "}]}".to_owned() } else { "}".repeat(opened('{')) };
            let mut found = found(&format!("{{kind: {kind}, {before}{spec}{close}}}"));
            found.sort();
            let expected = [
                ("containers[0].image", "a"),
                ("containers[1].image", "b"),
                ("ephemeralContainers[0].image", "e"),
                ("initContainers[0].image", "i"),
            ];
            let expected = expected.map(|(field, text)| (format!("{path}.{field}"), text.to_owned()));
            assert_eq!(found, expected, "{kind}");
        }
    }

    #[test]
    fn volumes_virtual_machines_and_annotations_tell_images_too() {
        for (yaml, field, image) in [
            (
                "{kind: Pod, spec: {volumes: [{name: a, emptyDir: {}}, {image: {reference: a/b:1}}]}}",
                "spec.volumes[1].image.reference",
                "a/b:1",
            ),
            (
                "{kind: VirtualMachine, spec: {template: {spec: {volumes: [{containerDisk: {image: a/disk}}]}}}}",
                "spec.template.spec.volumes[0].containerDisk.image",
                "a/disk",
            ),
            (
                "{kind: VirtualMachineInstance, spec: {domain: {firmware: {kernelBoot: {container: {image: a/k}}}}}}",
                "spec.domain.firmware.kernelBoot.container.image",
                "a/k",
            ),
            (
                "{kind: VirtualMachine, spec: {dataVolumeTemplates: [{spec: {source: {registry: {url: 'docker://a/d:1', pullMethod: node}}}}]}}",
                "spec.dataVolumeTemplates[0].spec.source.registry.url",
                "a/d:1",
            ),
            (
                "{kind: Operator, metadata: {annotations: {nqrust.io/images: ' a/b:1\n'}}}",
                "metadata.annotations[\"nqrust.io/images\"]",
                "a/b:1",
            ),
        ] {
            assert_eq!(found(yaml), [(field.to_owned(), image.to_owned())], "{yaml}");
        }
        assert_eq!(found("{kind: A, metadata: {annotations: {nqrust.io/images: 'a b\n c'}}}").len(), 3);
    }

    #[test]
    fn what_only_looks_like_a_pod_tells_nothing() {
        for yaml in [
            "{kind: CustomResourceDefinition, spec: {versions: [{default: {containers: [{image: a}]}}]}}",
            "{kind: ConfigMap, data: {pod.yaml: 'containers: [{image: a}]'}}",
            "{kind: A, spec: {containers: {image: a}, image: {repository: a, tag: b}}}",
            "{kind: A, spec: {containers: [{image: {repository: a, tag: b}}, {name: only}, text]}}",
            "{kind: DataVolume, spec: {source: {registry: {url: 'docker://a/b'}}}}",
            "[]",
            "text",
        ] {
            assert_eq!(found(yaml), [], "{yaml}");
        }
    }

    #[test]
    fn what_is_no_text_is_no_name_either() {
        for (image, text) in [("", ""), ("null", ""), ("5", "=5"), ("true", "=true"), ("'5'", "5")] {
            let found = found(&format!("{{kind: Pod, spec: {{containers: [{{image: {image}}}]}}}}"));
            assert_eq!(found, [("spec.containers[0].image".to_owned(), text.to_owned())]);
        }
    }

    #[test]
    fn lists_hold_objects_and_objects_have_titles() {
        let list = json!({"kind": "List", "items": [
            {"kind": "Pod", "metadata": {"name": "a", "namespace": "b"}},
            {"kind": "PodList", "items": [{"kind": "Pod", "metadata": {"generateName": "c-"}}]},
            {"kind": "Shop", "items": []},
        ]});
        let titles: Vec<String> = objects(&list).into_iter().map(title).collect();
        assert_eq!(titles, ["Pod b/a", "Pod c-", "Shop without a name"]);
    }

    fn tree() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            "[a-z:/@{} ]{0,8}".prop_map(Value::from)
        ];
        let key = "kind|items|containers|volumes|image|reference|containerDisk|kernelBoot|container|annotations|registry|url|metadata|nqrust.io/images|\\PC{0,3}";
        leaf.prop_recursive(6, 40, 5, move |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::hash_map(key, inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn no_tree_makes_it_panic(tree in tree()) {
            for object in objects(&tree) {
                title(object);
                for place in places(object) {
                    prop_assert!(!place.field.is_empty());
                }
            }
        }
    }
}

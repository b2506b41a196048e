//! The chart of `configs/serve`: what helm makes of it, what it refuses, and that the program takes the arguments of its containers.
//! On a cluster it is tried by `make soak` (`boot_servers`).

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where it cannot go on, helpers included")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use testing::{docs, golden, programs};

/// Of the cluster that is rendered for: helm assumes one of its own time otherwise.
const KUBERNETES: &str = "1.34";
/// Values of each way to run the servers, beside those of `configs/serve/values.yaml`.
const WAYS: [&str; 5] = [
    "replicas=1,database.url=,state.existingClaim=state",
    "medium.reference=,medium.existingClaim=medium,medium.path=dist",
    "medium.loginSecret=login,medium.registriesSecret=registries,configurations.clusterFile=cluster.yaml",
    "baseUrl=https://boot.example.com,tls.secret=tls,service.externalTrafficPolicy=Local,extraArgs={--kernel-argument=console=ttyS1}",
    "ingress.enabled=true,ingress.className=nginx,service.type=ClusterIP,metrics.serviceMonitor.enabled=true,\
     metrics.serviceMonitor.tokenSecret=token,medium.allowUnsigned=true,metrics.withoutToken=true",
];

fn folder() -> PathBuf {
    docs::repository().join("configs/serve")
}

/// helm, or nothing on a machine that lacks it.
fn helm(test: &str) -> Option<PathBuf> {
    let found = programs::find("helm");
    if found.is_none() {
        programs::leave_out(test, "helm is not on this machine");
    }
    found
}

/// `helm template` with the values of the folder and `further` ones, as of `--set`.
fn template(helm: &Path, further: &str) -> Output {
    let mut command = Command::new(helm);
    command.args([
        "template",
        "nqrust-serve",
        "chart",
        "--namespace",
        "nqrust",
        "--kube-version",
        KUBERNETES,
    ]);
    command.args(["--values", "values.yaml", "--set", further]).current_dir(folder()).output().unwrap()
}

fn rendered(helm: &Path, further: &str) -> String {
    let made = template(helm, further);
    assert!(made.status.success(), "{further}: {}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8(made.stdout).unwrap()
}

fn objects(text: &str) -> Vec<Value> {
    let documents = text.split("---\n").filter(|document| document.contains("kind:"));
    documents.map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}

/// The pod of the Deployment.
fn pod(objects: &[Value]) -> &Value {
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
    &deployment["spec"]["template"]["spec"]
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers"].into_iter().filter_map(|list| pod[list].as_array()).flatten()
}

#[test]
fn the_manifests_are_what_helm_makes_of_the_chart() {
    let Some(helm) = helm("the manifests of boot servers") else { return };
    golden::compare(folder().join("manifests.yaml"), &rendered(&helm, ""));
    let linted = Command::new(&helm)
        .args(["lint", "--strict", "chart", "--values", "values.yaml"])
        .current_dir(folder())
        .output();
    let linted = linted.unwrap();
    assert!(linted.status.success(), "{}", String::from_utf8_lossy(&linted.stdout));
}

#[test]
fn the_chart_and_the_image_that_it_names_have_the_version_of_the_program() {
    let chart = std::fs::read_to_string(folder().join("chart/Chart.yaml")).unwrap();
    for key in ["version", "appVersion"] {
        let line = format!("{key}: {}", env!("CARGO_PKG_VERSION"));
        assert!(chart.lines().any(|found| found == line), "{line} is missing");
    }
    let manifests = std::fs::read_to_string(folder().join("manifests.yaml")).unwrap();
    assert!(manifests.contains(concat!("/nqrust/iso-builder:", env!("CARGO_PKG_VERSION"), "\n")));
}

#[test]
fn the_program_takes_the_arguments_of_every_container_and_no_secret_is_in_one() {
    let Some(helm) = helm("the arguments of boot servers in pods") else { return };
    for way in WAYS.into_iter().chain([""]) {
        let text = rendered(&helm, way);
        let objects = objects(&text);
        for container in containers(pod(&objects)) {
            let arguments: Vec<&str> =
                container["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
            // An argument that is not valid comes before the help.
            let taken = Command::new(env!("CARGO_BIN_EXE_iso-builder"))
                .args(&arguments)
                .arg("--help")
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&taken.stderr);
            assert!(taken.status.success(), "{way}: {arguments:?}: {said}");
            let variables = container["env"].as_array().cloned().unwrap_or_default();
            assert!(variables.iter().all(|variable| variable["value"].is_string()), "{way}: {variables:?}");
            let mounts = container["volumeMounts"].as_array().unwrap().iter();
            let mounts: Vec<_> = mounts.map(|mount| mount["mountPath"].as_str().unwrap()).collect();
            let is_mounted = |path: &str| mounts.iter().any(|mount| path.starts_with(mount));
            let paths = arguments
                .iter()
                .flat_map(|word| word.split(['=', ',', '&']))
                .filter(|part| part.starts_with('/'));
            for path in paths.filter(|path| !path.starts_with("/dev/shm/")) {
                assert!(is_mounted(path), "{way}: {path} is not in {mounts:?}");
            }
        }
    }
}

#[test]
fn servers_get_the_limit_for_one_client_that_fits_the_way_to_them() {
    let Some(helm) = helm("the limits of boot servers in pods") else { return };
    for (values, expected) in [
        ("", Some("--connections-per-address=1000")),
        ("service.externalTrafficPolicy=Local", None),
        (
            "service.externalTrafficPolicy=Local,ingress.enabled=true,connections=50",
            Some("--connections-per-address=50"),
        ),
        (
            "service.type=ClusterIP,service.externalTrafficPolicy=Local",
            Some("--connections-per-address=1000"),
        ),
        ("connectionsPerAddress=7", Some("--connections-per-address=7")),
    ] {
        let objects = objects(&rendered(&helm, values));
        let arguments = pod(&objects)["containers"][0]["args"].as_array().unwrap();
        let found =
            arguments.iter().filter_map(Value::as_str).find(|word| word.starts_with("--connections-per"));
        assert_eq!(found, expected, "{values}");
    }
}

#[test]
fn values_that_do_not_fit_together_are_refused_with_what_to_set() {
    let Some(helm) = helm("values of the chart of boot servers") else { return };
    for (values, told) in [
        (
            "database.url=",
            "replicas is 3, and several servers need a database that they share: set database.url",
        ),
        ("database.url=,replicas=1", "set state.existingClaim, or database.url"),
        ("state.existingClaim=state", "exclude each other"),
        ("database.url=postgres://serve:SECRET@db/fleet", "set database.passwordSecret"),
        ("database.url=postgres://serve@db/fleet?password=SECRET", "set database.passwordSecret"),
        ("database.url=mysql://serve@db/fleet", "expected postgres://USER@HOST/DATABASE"),
        (
            "database.url=postgres://serve@db/fleet?sslrootcert=a",
            "set database.passwordSecret and database.authoritySecret",
        ),
        ("baseUrl=", "set baseUrl"),
        ("baseUrl=boot.example.com", "baseUrl: Does not match pattern"),
        ("tls.secret=tls", "begin it with https://"),
        ("image.repository=", "set image.repository"),
        ("medium.reference=", "set one of medium.reference"),
        ("medium.existingClaim=medium", "set one of medium.reference"),
        ("medium.keys=null", "set medium.keys"),
        ("medium.keys={release.pub}", "medium.keys.0: Does not match pattern"),
        ("configurations.secrets=null,configurations.clusterFile=cluster.yaml", "set configurations.secrets"),
        ("metrics.serviceMonitor.enabled=true", "set metrics.serviceMonitor.tokenSecret"),
        ("replica=2", "Additional property replica is not allowed"),
    ] {
        let made = template(&helm, values);
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(!made.status.success() && said.contains(told), "{values}: {said}");
        assert!(!said.contains("SECRET"), "{values}: {said}");
    }
}

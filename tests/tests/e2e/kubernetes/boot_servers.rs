//! Boot servers in the pods of a cluster, installed by helm with the chart of `configs/serve`; PostgreSQL is in a pod of another
//! namespace. Their namespace enforces the restricted standard for pods (kubernetes.io/docs/concepts/security/pod-security-standards).
//!
//! The release comes from a registry and is signed. Machines on the switch ask by the Service, at a port of a node: while they install,
//! servers are killed, the database goes away and comes back, and helm replaces all servers. Each machine gets its own configuration
//! once, and while helm works every request is answered.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use model::config::Role;
use model::machine::Selector;
use nqrust_load::measurements::RequestKind;
use nqrust_load::prepare::{self, MediumSizes};
use nqrust_load::report::LoadReport;
use nqrust_load::run::{LoadPlan, RetryLimits};
use nqrust_load::servers::Servers;
use nqrust_load::virtual_machine::VirtualMachine;
use nqrust_tests::deadline::{CLUSTER_INTERVAL, Deadline};
use nqrust_tests::native_cluster::{BaseTree, ClusterNode, Switch, TestCluster};
use nqrust_tests::registry::{Registry, RegistryAccess};
use nqrust_tests::{paths, programs};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};

use super::figures::Figures;
use crate::pipeline;

const NAMESPACE: &str = "--namespace=nqrust";
const NAME: &str = "nqrust-serve";
const DEPLOYMENT: &str = "deployment/nqrust-serve";
const SELECTOR: &str = "--selector=app.kubernetes.io/name=nqrust-serve";
const REPLICAS: usize = 3;
const IMAGE: &str = "localhost/nqrust-iso-builder";
const REGISTRY_PORT: u16 = 5000;
/// The port of every node that leads to the servers, and the node that machines use.
const NODE_PORT: u16 = 30080;
const ENTRY: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 11);

const DATABASE_NAMESPACE: &str = "--namespace=database";
const DATABASE_HOST: &str = "database.database.svc.cluster.local";
const DATABASE_IMAGE: &str = "localhost/nqrust/postgres:1";
const DATABASE_PASSWORD: &str = "a-password-of-the-database";
const DATABASE_PACKAGES: [&str; 5] = ["base-files", "base-passwd", "coreutils", "dash", "postgresql"];
/// PostgreSQL refuses to be run by root, and wants a name for its user.
const DATABASE_SETTLED: &str = "cp usr/share/base-passwd/passwd.master etc/passwd
cp usr/share/base-passwd/group.master etc/group
echo 'serve:x:1000:1000::/nonexistent:/bin/sh' >>etc/passwd
echo 'serve:x:1000:' >>etc/group";
/// Only connections with TLS and a password come in over the network.
const DATABASE_START: &str = "cd /usr/lib/postgresql/*/bin
[ -s /data/database/PG_VERSION ] || {
  ./initdb --pgdata=/data/database --username=serve --pwfile=/secret/password --encoding=UTF8 --locale=C --auth-local=trust
  echo 'hostssl all all all scram-sha-256' >/data/database/pg_hba.conf
  echo 'local all all trust' >>/data/database/pg_hba.conf
}
exec ./postgres -D /data/database -c listen_addresses='*' -c unix_socket_directories=/tmp -c ssl=on \
  -c ssl_cert_file=/secret/tls.crt -c ssl_key_file=/secret/tls.key";

/// Machines of each part of the test.
const UNDISTURBED: u32 = 10;
const WITH_KILLED_SERVERS: u32 = 60;
const WITHOUT_DATABASE: u32 = 60;
const WHILE_REPLACED: u32 = 150;
const MACHINES: u32 = UNDISTURBED + WITH_KILLED_SERVERS + WITHOUT_DATABASE + WHILE_REPLACED;
/// Beginning one after the other, in an hour.
const RATE: f64 = 3600.0;
/// How long the database is away.
const OUTAGE: Duration = Duration::from_secs(20);
/// The memory of a server in bytes, the goal of the project.
const MEMORY: f64 = 300.0 * 1024.0 * 1024.0;
/// Until pods run.
const RUN: Duration = Duration::from_secs(240);
const COMMAND: Duration = Duration::from_secs(120);
const HELM: Duration = Duration::from_secs(400);

pub(super) fn nodes() -> Vec<ClusterNode> {
    vec![ClusterNode::new("node-1", Role::Management, 11), ClusterNode::new("node-4", Role::Worker, 21)]
}

pub(super) fn check(cluster: &mut TestCluster, directory: &Path, figures: &mut Figures<'_>) -> Result<()> {
    let helm = testing::programs::find("helm").context("helm is missing; run `make helm`")?;
    let layout = pipeline::builder_image(&directory.join("image"), &pipeline::downloads("cluster")?)?;
    cluster.add_layout(&layout)?;
    cluster.add_tree_image(&BaseTree::of(&DATABASE_PACKAGES, DATABASE_SETTLED)?, DATABASE_IMAGE)?;
    let mut registry = Registry::start(&directory.join("registry"), RegistryAccess::default())?;
    let digest = publish(&directory.join("medium"), &registry.host())?;
    let mut program = cluster.switch.command("docker-registry");
    program.env("HOME", "/nonexistent");
    registry.move_to(program, &format!("{}:{REGISTRY_PORT}", Switch::ADMINISTRATOR))?;
    figures.done("images, and a release in a registry")?;
    cluster.create(&mut |part| figures.done(part))?;
    cluster.join_all(&["node-4"], &mut |part| figures.done(part))?;
    let servers = InstalledServers {
        cluster,
        helm,
        values: directory.join("values.json"),
        reference: reference(&digest),
    };
    let done = servers.check(figures);
    if done.is_err() {
        figures.keep("pods.txt", &servers.told())?;
    }
    done
}

/// Makes a release, signs it and pushes it. Returns the digest of its manifest in the registry.
fn publish(medium: &Path, registry: &str) -> Result<String> {
    let size = base::size::ByteSize::mib;
    prepare::medium(
        medium,
        MediumSizes { kernel: size(1), initrd: size(4), os_image: size(16), blobs: 4, blob: size(2) },
    )?;
    let mut sign = programs::iso_builder()?;
    sign.args(["keys", "sign", "--sign-with=development"]).arg(medium);
    programs::run(&mut sign, COMMAND)?.success("iso-builder keys sign")?;
    let mut push = programs::iso_builder()?;
    push.args(["push", "--format=json"]).arg(medium).arg(format!("{registry}/nqrust/release:1"));
    let pushed: Value =
        serde_json::from_str(&programs::run(&mut push, COMMAND)?.success("iso-builder push")?)?;
    pushed["digest"].as_str().map(str::to_owned).with_context(|| format!("the digest in {pushed}"))
}

/// The release as pods name it.
fn reference(digest: &str) -> String {
    format!("{}:{REGISTRY_PORT}/nqrust/release@{digest}", Switch::ADMINISTRATOR)
}

/// A certificate authority and a certificate of the database with its key, all in PEM.
fn certificates() -> Result<[String; 3]> {
    let (own, key) = (KeyPair::generate()?, KeyPair::generate()?);
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&own)?.pem();
    let certificate =
        CertificateParams::new(vec![DATABASE_HOST.into()])?.signed_by(&key, &Issuer::new(params, own))?;
    Ok([authority, certificate.pem(), key.serialize_pem()])
}

/// The servers and what a person does with them.
struct InstalledServers<'a> {
    cluster: &'a TestCluster,
    helm: PathBuf,
    values: PathBuf,
    reference: String,
}

impl InstalledServers<'_> {
    fn check(&self, figures: &mut Figures<'_>) -> Result<()> {
        self.start_database()?;
        figures.done("the database runs")?;
        self.prepare()?;
        self.write_values("1")?;
        let notes = self.run_helm("install")?;
        figures.keep("notes.txt", &notes)?;
        let nodes = self.spread()?;
        figures.done(&format!("helm has installed the servers, on {nodes}"))?;
        self.apply_manifests()?;
        let token = self.token("prometheus", "read")?;
        let report = self.machines(figures, 0, UNDISTURBED, || Ok(()))?;
        all_answered(&report)?;
        figures.done(&format!("{UNDISTURBED} machines have installed"))?;

        let report = self.machines(figures, UNDISTURBED, WITH_KILLED_SERVERS, || self.kill_servers())?;
        figures.done(&format!("{WITH_KILLED_SERVERS} machines have installed while servers were killed"))?;
        self.look_at_metrics(&token, figures)?;
        let mut lost = report.configurations_lost;

        self.add_configuration()?;
        let first = UNDISTURBED + WITH_KILLED_SERVERS;
        let report = self.machines(figures, first, WITHOUT_DATABASE, || self.stop_database(&token))?;
        let waits = report.errors.iter().find(|error| error.kind == RequestKind::BootScript);
        ensure!(waits.is_some(), "no loader had to wait: {}", report.table());
        figures.done(&format!("{WITHOUT_DATABASE} machines have installed while the database was away"))?;
        lost += report.configurations_lost;
        self.await_configurations(&token)?;
        figures.done("the servers have read a configuration that was added to a Secret")?;

        self.write_values("2")?;
        let first = first + WITHOUT_DATABASE;
        let before = self.pods()?;
        let report = self.machines(figures, first, WHILE_REPLACED, || self.run_helm("upgrade").map(drop))?;
        all_answered(&report)?;
        let after = self.pods()?;
        ensure!(before.keys().all(|name| !after.contains_key(name)), "helm has not replaced {before:?}");
        figures.done(&format!("{WHILE_REPLACED} machines have installed while helm replaced the servers"))?;
        self.look_at_metrics(&token, figures)?;
        self.look_at_records(first + WHILE_REPLACED, lost)?;
        figures.done("every machine has its configuration once")
    }

    fn database(&self, replicas: u32, tls: &[String; 3]) -> Value {
        let labels = json!({ "app": "database" });
        let [_, certificate, key] = tls;
        let volumes = json!([
            { "name": "data", "hostPath": { "path": "/var/lib/database", "type": "DirectoryOrCreate" } },
            { "name": "secret", "secret": { "secretName": "database", "defaultMode": 0o400 } },
        ]);
        let container = |name: &str, user: u32, script: &str| {
            json!({
                "name": name, "image": DATABASE_IMAGE, "imagePullPolicy": "Never",
                "command": ["/bin/sh", "-euc", script],
                "securityContext": { "runAsUser": user, "runAsGroup": user },
                "volumeMounts": [
                    { "name": "data", "mountPath": "/data" }, { "name": "secret", "mountPath": "/secret" },
                ],
            })
        };
        let mut server = container("postgres", 1000, DATABASE_START);
        let ready =
            "cd /usr/lib/postgresql/*/bin; ./pg_isready --host=/tmp --username=serve --dbname=postgres";
        server["readinessProbe"] = json!({ "exec": { "command": ["/bin/sh", "-c", ready] }, "periodSeconds": 1, "timeoutSeconds": 5 });
        let directory = container("directory", 0, "install -d -o 1000 -g 1000 -m 0700 /data/database");
        let set = json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": { "name": "database", "namespace": "database" },
            "spec": {
                "serviceName": "database", "replicas": replicas, "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": {
                    // Its data is there.
                    "nodeSelector": { "kubernetes.io/hostname": "node-4" },
                    // PostgreSQL would wait for its clients: this is as a power cut.
                    "terminationGracePeriodSeconds": 1,
                    "securityContext": { "fsGroup": 1000 },
                    "initContainers": [directory], "containers": [server], "volumes": volumes,
                } },
            },
        });
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": "database", "namespace": "database" },
            "spec": { "selector": labels, "ports": [{ "port": 5432 }] },
        });
        let namespace =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "database" } });
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "database", "namespace": "database" },
            "stringData": { "password": DATABASE_PASSWORD, "tls.crt": certificate, "tls.key": key },
        });
        json!({ "apiVersion": "v1", "kind": "List", "items": [namespace, secret, service, set] })
    }

    fn start_database(&self) -> Result<()> {
        let kubectl = self.cluster.kubectl();
        let tls = certificates()?;
        // The account that pods of a new namespace have comes some seconds after the cluster.
        let database = self.database(1, &tls);
        Deadline::after(RUN)
            .every(CLUSTER_INTERVAL)
            .poll("the objects of the database", || Ok(kubectl.apply(&database).is_ok().then_some(())))?;
        self.await_database(1)?;
        let labels = json!({ "pod-security.kubernetes.io/enforce": "restricted" });
        let [authority, ..] = &tls;
        let password = format!("{DATABASE_HOST}:5432:postgres:serve:{DATABASE_PASSWORD}\n");
        kubectl.apply(&json!({ "apiVersion": "v1", "kind": "List", "items": [
            { "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "nqrust", "labels": labels } },
            {
                "apiVersion": "v1", "kind": "Secret",
                "metadata": { "name": "nqrust-database", "namespace": "nqrust" },
                "stringData": { "pgpass": password, "ca.crt": authority },
            },
        ] }))
    }

    fn await_database(&self, ready: u64) -> Result<()> {
        let kubectl = self.cluster.kubectl();
        Deadline::after(RUN).every(CLUSTER_INTERVAL).poll(
            &format!("{ready} ready pods of the database"),
            || {
                let status = kubectl.get(&["statefulset", "database", DATABASE_NAMESPACE])?["status"].clone();
                let is_so = |key: &str| status[key].as_u64().unwrap_or_default() == ready;
                Ok((is_so("readyReplicas") && is_so("replicas")).then_some(()))
            },
        )
    }

    /// The Secrets that the values name, but for that of the database.
    fn prepare(&self) -> Result<()> {
        let nodes = self.values.with_file_name("nodes");
        prepare::configurations(&nodes, MACHINES, 1)?;
        let mut secrets = [serde_json::Map::new(), serde_json::Map::new()];
        for (place, entry) in (0..).zip(fs::read_dir(&nodes)?) {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            secrets[place % 2].insert(name, fs::read_to_string(&path)?.into());
        }
        let host = format!("{}:{REGISTRY_PORT}", Switch::ADMINISTRATOR);
        let registries = json!({ "mirrors": { &host: { "endpoint": [format!("http://{host}")] } } });
        let registries =
            serde_json::Map::from_iter([("registries.yaml".to_owned(), registries.to_string().into())]);
        let [first, second] = secrets;
        for (name, files) in [("nodes-0", first), ("nodes-1", second), ("registries", registries)] {
            self.cluster.kubectl().apply_on_server(&json!({
                "apiVersion": "v1", "kind": "Secret", "stringData": files,
                "metadata": { "name": name, "namespace": "nqrust" },
            }))?;
        }
        Ok(())
    }

    /// Adds the configuration of a machine that never asks.
    fn add_configuration(&self) -> Result<()> {
        let machine = VirtualMachine::new(MACHINES, 1);
        let mac = machine.mac().context("a machine without the address of its card")?;
        let name = format!("{}.yaml", Selector::Mac(mac).stem());
        let patch = json!({ "stringData": { name: machine.configuration() } }).to_string();
        let words = ["patch", "secret", "nodes-0", NAMESPACE, "--type=merge", "--patch", &patch];
        self.cluster.kubectl().run(&words).map(drop)
    }

    fn await_configurations(&self, token: &str) -> Result<()> {
        Deadline::after(RUN).every(CLUSTER_INTERVAL).poll("the new configuration at every server", || {
            let counts: Result<Vec<f64>> = self
                .metrics(token)?
                .values()
                .map(|metrics| value(metrics, "nqrust_configurations"))
                .collect();
            Ok(counts?.iter().all(|count| *count == f64::from(MACHINES + 1)).then_some(()))
        })
    }

    /// The values of the chart; another `round` makes other pods.
    fn write_values(&self, round: &str) -> Result<()> {
        let key = fs::read_to_string(paths::keys().join("development.pub"))?;
        let key = key.lines().nth(1).context("the line of the key")?;
        let values = json!({
            "replicas": REPLICAS,
            "image": { "repository": IMAGE, "pullPolicy": "Never" },
            "baseUrl": format!("http://{ENTRY}:{NODE_PORT}"),
            "medium": { "reference": self.reference, "registriesSecret": "registries", "keys": [key] },
            "configurations": { "secrets": ["nodes-0", "nodes-1"] },
            "database": {
                "url": format!("postgres://serve@{DATABASE_HOST}/postgres"),
                "passwordSecret": "nqrust-database",
                "authoritySecret": "nqrust-database",
            },
            "service": { "type": "NodePort", "nodePort": NODE_PORT },
            "drainSeconds": 10,
            "podAnnotations": { "example.org/round": round },
        });
        fs::write(&self.values, values.to_string()).context("writing the values of the chart")
    }

    /// Runs `helm install` or `helm upgrade` until the servers are ready. Returns its output.
    fn run_helm(&self, command: &str) -> Result<String> {
        let mut helm = self.cluster.kubectl().like(&self.helm);
        helm.env("HOME", self.values.with_file_name("helm"));
        helm.args([command, NAME])
            .arg(paths::workspace().join("configs/serve/chart"))
            .arg("--values")
            .arg(&self.values);
        helm.args([NAMESPACE, "--wait", "--timeout=6m"]);
        programs::run(&mut helm, HELM)?.success(&format!("helm {command}"))
    }

    /// The API server takes the plain manifests.
    fn apply_manifests(&self) -> Result<()> {
        let file = paths::workspace().join("configs/serve/manifests.yaml").display().to_string();
        // Objects of the same names are there, and helm manages them.
        let text = fs::read_to_string(&file)?.replace("nqrust-serve", "plain");
        let words = ["apply", "--dry-run=server", NAMESPACE, "--filename", "-"];
        let told = self.cluster.kubectl().call(&words, &text)?.success("applying the plain manifests")?;
        ensure!(told.matches("created (server dry run)").count() == 3, "{told}");
        Ok(())
    }

    /// The addresses of the servers' pods that are ready, by their names. There are as many as the values say.
    fn pods(&self) -> Result<BTreeMap<String, String>> {
        let is_ready = |pod: &Value| {
            let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
            conditions.clone().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
        };
        Deadline::after(RUN).every(CLUSTER_INTERVAL).poll("pods of servers that are ready", || {
            let pods = self.cluster.kubectl().list(&["pods", NAMESPACE, SELECTOR]);
            let text = |value: &Value| value.as_str().map(str::to_owned);
            let there = pods.iter().filter(|pod| pod["metadata"].get("deletionTimestamp").is_none());
            let ready = there.filter(|pod| is_ready(pod));
            let found: BTreeMap<_, _> = ready
                .filter_map(|pod| Some((text(&pod["metadata"]["name"])?, text(&pod["status"]["podIP"])?)))
                .collect();
            Ok((found.len() == REPLICAS).then_some(found))
        })
    }

    /// The nodes that have servers: both.
    fn spread(&self) -> Result<String> {
        let pods = self.cluster.kubectl().list(&["pods", NAMESPACE, SELECTOR]);
        let mut nodes: Vec<_> = pods.iter().filter_map(|pod| pod["spec"]["nodeName"].as_str()).collect();
        nodes.sort_unstable();
        nodes.dedup();
        ensure!(nodes == ["node-1", "node-4"], "the servers are on {nodes:?}");
        Ok(nodes.join(" and "))
    }

    /// A token, made as the notes of the chart say.
    fn token(&self, name: &str, role: &str) -> Result<String> {
        let state = format!(
            "postgres://serve@{DATABASE_HOST}/postgres?passfile=/run/nqrust/password/pgpass&sslrootcert=/run/nqrust/authority/ca.crt"
        );
        let words = ["exec", NAMESPACE, DEPLOYMENT, "--container=serve", "--"];
        let make = ["iso-builder", "tokens", "new", name, "--role", role, "--state", &state, "--format=json"];
        let told: Value = serde_json::from_str(&self.cluster.kubectl().run(&[&words[..], &make].concat())?)?;
        told["token"].as_str().map(str::to_owned).with_context(|| format!("the token in {told}"))
    }

    /// Lets machines install, one after the other, and does `disturb` meanwhile. Every machine installs once with its own
    /// configuration; of one whose server ended at that moment it can be lost.
    fn machines(
        &self,
        figures: &Figures<'_>,
        first: u32,
        machines: u32,
        disturb: impl FnOnce() -> Result<()>,
    ) -> Result<LoadReport> {
        let mut plan = LoadPlan { first, machines, per_hour: Some(RATE), ..LoadPlan::default() };
        plan.install.own_addresses = false;
        plan.install.duration = Duration::from_secs(3);
        plan.install.retry =
            RetryLimits { patience: Duration::from_secs(150), pause: Duration::from_millis(500) };
        let servers = Servers::new(vec![SocketAddr::from((ENTRY, NODE_PORT))])?;
        let network = self.cluster.switch.network();
        let begun = Instant::now();
        let (disturbed, result) = thread::scope(|scope| {
            let running = scope.spawn(|| network.within(|| plan.run(servers)));
            let disturbed = disturb().map(|()| begun.elapsed());
            (disturbed, running.join())
        });
        let Ok(result) = result else { bail!("the machines have panicked") };
        let result = result??;
        let report = LoadReport::new(&plan, &result, &[], &[]);
        figures.keep("machines.txt", &format!("{}\n", report.table()))?;
        let disturbed = disturbed?;
        ensure!(
            disturbed < result.time,
            "the machines had installed after {:?}, and it took {disturbed:?}",
            result.time
        );
        let is_complete = report.reached + report.configurations_lost == machines as usize;
        ensure!(is_complete && report.violations.is_empty(), "{}", report.table());
        ensure!(report.configurations_lost <= 2, "{}", report.table());
        Ok(report)
    }

    /// Kills the process of one server, and removes the pod of another without any time to end.
    fn kill_servers(&self) -> Result<()> {
        let pause = || thread::sleep(Duration::from_secs(10));
        pause();
        let node = self.cluster.node("node-4")?;
        node.run("kill -KILL $(pgrep --full --oldest 'iso-builder[ ]serve')")?;
        pause();
        let (first, _) = self.pods()?.pop_first().context("a pod of a server")?;
        self.cluster.kubectl().run(&[
            "delete",
            "pod",
            &first,
            NAMESPACE,
            "--grace-period=0",
            "--force",
            "--wait=false",
        ])?;
        pause();
        ensure!(!self.pods()?.contains_key(&first), "{first} is still there");
        Ok(())
    }

    /// Takes the database away for some time. The servers stay ready, and say what they lack.
    fn stop_database(&self, token: &str) -> Result<()> {
        // A token that a server has accepted is accepted without the database.
        let servers = self.metrics(token)?;
        let scale = |replicas: &str| {
            let words = ["scale", "statefulset", "database", DATABASE_NAMESPACE, replicas];
            self.cluster.kubectl().run(&words).map(drop)
        };
        scale("--replicas=0")?;
        self.await_database(0)?;
        thread::sleep(OUTAGE);
        let without = self.metrics(token)?;
        ensure!(
            without.keys().eq(servers.keys()),
            "{:?} were ready before, and now {:?}",
            servers.keys(),
            without.keys()
        );
        for (pod, metrics) in &without {
            ensure!(value(metrics, "nqrust_state_up")? == 0.0, "{pod} has the database still");
        }
        scale("--replicas=1")?;
        self.await_database(1)
    }

    /// The metrics of every server, which takes a token, by the names of the pods.
    fn metrics(&self, token: &str) -> Result<BTreeMap<String, String>> {
        let node = self.cluster.node("node-1")?;
        let of = |address: &str, header: &str| {
            let mut curl = node.command("curl");
            curl.args([
                "--silent",
                "--show-error",
                "--max-time",
                "20",
                "--write-out",
                "%{http_code}",
                "--header",
                "@-",
            ]);
            curl.arg(format!("http://{address}:8080/metrics"));
            programs::run_with_input(&mut curl, header.as_bytes(), COMMAND)?.success("asking for metrics")
        };
        let mut all = BTreeMap::new();
        for (name, address) in self.pods()? {
            let refused = of(&address, "Accept: text/plain\n")?;
            ensure!(refused.ends_with("401"), "{name} answers without a token: {refused}");
            let told = of(&address, &format!("Authorization: Bearer {token}\n"))?;
            let text =
                told.strip_suffix("200").with_context(|| format!("{name} refuses the token: {told}"))?;
            all.insert(name, text.to_owned());
        }
        Ok(all)
    }

    /// Every server has the database and little memory, and all count the same machines.
    fn look_at_metrics(&self, token: &str, figures: &Figures<'_>) -> Result<()> {
        let mut joined = Vec::new();
        for (pod, metrics) in self.metrics(token)? {
            ensure!(value(&metrics, "nqrust_state_up")? == 1.0, "{pod} has no database");
            let memory = value(&metrics, "process_resident_memory_bytes")?;
            ensure!(memory <= MEMORY, "{pod} has {memory} bytes of memory");
            joined.push(value(&metrics, "nqrust_machines{stage=\"joined\",group=\"installed\"}")?);
            let given = value(&metrics, "nqrust_configurations_handed_out_total")?;
            figures
                .say(&format!("{pod}: {:.1} MiB, {given} configurations handed out", memory / 1048576.0))?;
        }
        ensure!(joined.iter().all(|count| *count == joined[0]), "the servers count {joined:?} machines");
        Ok(())
    }

    /// The database, over TLS, has each of these machines once, and the page of each server opens with one token.
    fn look_at_records(&self, machines: u32, lost: usize) -> Result<()> {
        let sql = |sql: &str| {
            let psql =
                format!("cd /usr/lib/postgresql/*/bin; ./psql -h /tmp -U serve -d postgres -Atc \"{sql}\"");
            let words =
                ["exec", DATABASE_NAMESPACE, "database-0", "--container=postgres", "--", "sh", "-euc", &psql];
            self.cluster.kubectl().run(&words).map(|told| told.trim().to_owned())
        };
        let joined = machines as usize - lost;
        let found =
            sql("SELECT count(*), count(DISTINCT assigned) FROM nqrust.machines WHERE state = 'joined'")?;
        ensure!(found == format!("{joined}|{joined}"), "of {machines} machines have joined: {found}");
        let found = sql(
            "SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'nqrust serve'",
        )?;
        ensure!(found == "t", "whether the connections to the database have TLS: {found}");
        let mut pages = Vec::new();
        for pod in self.pods()?.keys() {
            let words =
                ["exec", NAMESPACE, pod, "--container=serve", "--", "cat", "/dev/shm/nqrust/fleet-url"];
            pages.push(self.cluster.kubectl().run(&words)?);
        }
        pages.dedup();
        let [page] = pages.as_slice() else {
            bail!("the servers have {} addresses of their page", pages.len())
        };
        let mut curl = self.cluster.switch.command("curl");
        curl.args([
            "--silent",
            "--show-error",
            "--fail",
            "--location",
            "--output",
            "/dev/null",
            "--config",
            "-",
        ]);
        // Standard input in place of an argument: the address has a token.
        let config = format!("url = \"{}\"\ncookie = \"\"\n", page.trim());
        programs::run_with_input(&mut curl, config.as_bytes(), COMMAND)?.success("the fleet page").map(drop)
    }

    /// Everything about the pods, for the person who reads a failure.
    fn told(&self) -> String {
        let kubectl = self.cluster.kubectl();
        let say = |words: &[&str]| kubectl.call(words, "").map(|told| told.said()).unwrap_or_default();
        let mut text = say(&["get", "pods,services,endpoints", "--all-namespaces", "--output=wide"]);
        for namespace in [NAMESPACE, DATABASE_NAMESPACE] {
            text += &say(&["describe", "pods,replicasets", namespace]);
            text += &say(&["get", "events", namespace]);
            for pod in kubectl.list(&["pods", namespace]) {
                let pod = pod["metadata"]["name"].as_str().unwrap_or_default();
                text += &say(&["logs", pod, namespace, "--all-containers", "--prefix"]);
                text += &say(&["logs", pod, namespace, "--all-containers", "--prefix", "--previous"]);
            }
        }
        text
    }
}

/// Every machine was installed, and no request had to be sent again.
fn all_answered(report: &LoadReport) -> Result<()> {
    ensure!(report.is_good() && report.errors.is_empty(), "{}", report.table());
    Ok(())
}

/// A value in the text format of Prometheus.
fn value(metrics: &str, name: &str) -> Result<f64> {
    let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value = value.with_context(|| format!("{name} in {metrics}"))?;
    value.trim().parse().with_context(|| format!("the value {value} of {name}"))
}

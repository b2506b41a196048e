//! Fleets in the states that the tests need, made through the server's own interface: machines ask, are told to boot, and
//! report.

use std::collections::BTreeMap;

use base::progress::{Event as Told, StepState};
use model::config::Secret;
use model::fleet::{NodeReport, ReportLine, RunFailure, StreamHeader};
use model::machine::{Identity, Selector};
use netboot::fleet::routes::{Fleet, FleetReply, FleetRequest, FleetSources};
use netboot::machines::access_token::TokenRole;
use netboot::machines::audit::Actor;
use netboot::machines::configurations::{ConfigurationSource, Configurations};
use netboot::machines::id::MachineId;
use netboot::machines::machine::OperatorAction;
use netboot::machines::registry::MachineRegistry;
use netboot::machines::store::location::StateLocation;
use netboot::moment::Moment;
use uuid::Uuid;

/// The time of the tests.
pub(crate) const NOW: Moment = Moment(1_795_289_525);
pub(crate) const TOKEN: &str = "0123456789abcdef";

pub(crate) struct Scene {
    fleet: Fleet,
    store: MachineRegistry,
    configurations: Configurations,
    /// The report token of each machine, by its name.
    tokens: BTreeMap<String, String>,
    /// In the order in which the machines were made.
    ids: Vec<MachineId>,
    _directory: tempfile::TempDir,
}

pub(crate) enum MachineState {
    /// It asked, and no configuration names it.
    Unknown,
    /// It asked, and there is a fallback for machines that are allowed.
    Guest,
    Denied,
    Redeploy,
    Booting,
    Preflight,
    /// Percent of the OS image.
    Writing(u64),
    /// Percent of the container images.
    Seeding(u64),
    /// It stopped in the middle of the image and has not reported since.
    Silent,
    Finishing,
    Rebooting,
    Installed,
    Joining,
    Joined,
    /// It is installed, and its cluster refuses it.
    NotJoined,
    Failed,
    /// A failure of a machine whose texts all contain markup.
    Hostile,
}

impl Scene {
    pub(crate) fn new(machines: &[(&str, MachineState)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store =
            MachineRegistry::open(&StateLocation::in_directory(directory.path()), Box::new(|_| {})).unwrap();
        let fleet = Fleet::new(&Secret::new(TOKEN), false);
        let (configurations, tokens) = (Configurations::default(), BTreeMap::new());
        let mut scene = Self { fleet, store, configurations, tokens, ids: Vec::new(), _directory: directory };
        machines.iter().for_each(|(name, come)| scene.add(name, come));
        if machines.iter().any(|(_, come)| matches!(come, MachineState::Guest)) {
            scene.configurations.add("default.yaml", Secret::new(""), Vec::new());
        }
        scene
    }

    /// An install of three nodes, with machines in all other states.
    pub(crate) fn under_way() -> Self {
        Self::new(&[
            ("rack1-node1", MachineState::Seeding(41)),
            ("rack1-node2", MachineState::Writing(63)),
            ("rack1-node3", MachineState::Preflight),
            ("rack1-witness", MachineState::Booting),
            ("rack2-node1", MachineState::Joining),
            ("rack2-node2", MachineState::Rebooting),
            ("rack2-node3", MachineState::Finishing),
            ("rack3-node1", MachineState::Silent),
            ("rack3-node2", MachineState::Redeploy),
            ("x", MachineState::Unknown),
            ("y", MachineState::Guest),
            ("z", MachineState::Denied),
        ])
    }

    /// A fleet of so many machines in racks of 40 and clusters of 100, most of which have joined.
    pub(crate) fn large(count: u32) -> Self {
        let files = tempfile::tempdir().unwrap();
        let mac = |number: u32| {
            let [_, a, b, c] = number.to_be_bytes();
            format!("52-54-00-{a:02x}-{b:02x}-{c:02x}")
        };
        let name = |number: u32| format!("rack-{}-node-{}", number / 40 + 1, number % 40 + 1);
        for number in 0..count {
            let vip = format!("10.9.{}.1", number / 100);
            let (server, mode) = match number % 100 {
                0 => (String::new(), format!("mode: create, vip: {vip}")),
                _ => (format!("server_url: https://{vip}\n"), "mode: join".to_owned()),
            };
            let text = format!(
                "{server}token: 9f2c4e6a8b0d1357924680acebdf1357\n\
                 os: {{hostname: {}, password: a-very-secret-password, ntp_servers: [192.0.2.123], \
                 labels: {{topology.kubernetes.io/zone: rack-{}}}}}\n\
                 install: {{{mode}, device: /dev/disk/by-id/virtio-1}}\n",
                name(number),
                number / 40 + 1,
            );
            std::fs::write(files.path().join(format!("mac-{}.yaml", mac(number))), text).unwrap();
        }
        let origin = ConfigurationSource::Directory(files.path().to_owned());
        let mut scene = Self::new(&[]);
        scene.configurations = Configurations::load(&origin, &[]).unwrap();
        for number in 0..count {
            scene.add_one_of_many(&name(number), &mac(number), number);
        }
        scene
    }

    fn add_one_of_many(&mut self, name: &str, mac: &str, number: u32) {
        let identity = Identity {
            macs: vec![mac.replace('-', ":").parse().unwrap()],
            serial: Some(format!("CZ23{number:06}")),
            ..Identity::default()
        };
        let [_, a, b, c] = number.to_be_bytes();
        let peer = [10, a, b, c].into();
        let asked = Moment(NOW.0 - 900);
        let booted = self.store.boot(&identity, peer, &self.configurations, asked).unwrap();
        self.ids.push(booted.machine.unwrap());
        let (configuration, report) = booted.tokens.unwrap();
        self.tokens.insert(name.to_owned(), report.expose().to_owned());
        // One of a hundred boots, one has never reported.
        if number % 100 == 13 {
            return;
        }
        self.store.take(configuration.expose(), peer, &self.configurations, 3600, asked).unwrap().unwrap();
        let mut run = Run { scene: self, name, seq: 0, at: NOW.0 - 700 };
        match number % 100 {
            7 => run.failed(
                &["installing, step image", "Input/output error (os error 5)"],
                &["Replace the disk."],
            ),
            17 | 27 => run.count("image", "Writing the OS image", IMAGE, 20 + u64::from(number % 60), 0),
            37 => run.count("image", "Writing the OS image", IMAGE, 17, 400),
            47 => run.at_once(NodeReport {
                stage: "server".into(),
                detail: "https://10.9.0.1:9345 does not answer: connection refused".into(),
                ..NodeReport::default()
            }),
            _ => run.at_once(NodeReport { ready: true, stage: "ready".into(), ..NodeReport::default() }),
        }
    }

    pub(crate) fn failure() -> Self {
        let scene = Self::new(&[
            ("rack1-node1", MachineState::Installed),
            ("rack1-node2", MachineState::Failed),
            ("rack1-node3", MachineState::Writing(88)),
            ("rack1-node4", MachineState::NotJoined),
        ]);
        scene.dispute();
        scene
    }

    pub(crate) fn finished() -> Self {
        let names = ["management-1", "management-2", "witness", "worker-1", "worker-2", "worker-3"];
        Self::new(&names.map(|name| (name, MachineState::Joined)))
    }

    pub(crate) fn hostile() -> Self {
        Self::new(&[("<script>alert(1)</script>", MachineState::Hostile)])
    }

    /// The page at `path`, requested with the token.
    pub(crate) fn get(&self, path: &str) -> FleetReply {
        let authorization = Some("Bearer 0123456789abcdef");
        self.answer(&FleetRequest { method: "GET", path, authorization, ..FleetRequest::default() }, NOW)
    }

    pub(crate) fn answer(&self, request: &FleetRequest<'_>, now: Moment) -> FleetReply {
        let known = FleetSources { store: &self.store, configurations: &self.configurations, note: &|_| {} };
        self.fleet.answer(request, known, now).unwrap()
    }

    /// The path of the page of the machine number `index`.
    pub(crate) fn path_of(&self, index: usize) -> String {
        format!("/fleet/machines/{}", self.ids[index])
    }

    /// Text with the random ids of the machines replaced by m0, m1, and so on.
    pub(crate) fn anonymous(&self, text: &str) -> String {
        let replace = |text: String, (index, id): (usize, &MachineId)| {
            text.replace(&id.to_string(), &format!("m{index}"))
        };
        self.ids.iter().enumerate().fold(text.to_owned(), replace)
    }

    fn add(&mut self, name: &str, come: &MachineState) {
        let number = self.ids.len();
        let asset_tag = match come {
            MachineState::Unknown => Some("unknown".to_owned()),
            MachineState::Guest => Some("guest".to_owned()),
            MachineState::Hostile => Some(format!("{name}\u{202e}'\"")),
            _ => None,
        };
        let mac = |card: usize| format!("52:54:00:1f:{card:02x}:{number:02x}").parse().unwrap();
        let identity = Identity {
            macs: (0..=number % 4).map(mac).collect(),
            serial: Some(format!("CZ2309{:04}", 1207 + number * 31)),
            uuid: Some(Uuid::from_u128(0x4c4c_4544_0042_3510_8052_b4c0_4f4a_5a00 + number as u128)),
            asset_tag,
        };
        let asked = NOW.0 - 900;
        let named = !matches!(come, MachineState::Unknown | MachineState::Guest | MachineState::Denied);
        if named {
            let selectors = identity.macs.iter().copied().map(Selector::Mac);
            let tag = identity.asset_tag.iter().filter_map(|tag| format!("asset-tag:{tag}").parse().ok());
            let serial = format!("serial:{}", identity.serial.clone().unwrap()).parse::<Selector>();
            let selectors = selectors.chain(serial).chain(tag).collect();
            self.configurations.add(&format!("{name}.yaml"), Secret::new("secret"), selectors);
        }
        let before = self.machines();
        let peer = [192, 0, 2, 100 + u8::try_from(number).unwrap()].into();
        let boot = |identity: &Identity, peer, at| {
            self.store.boot(identity, peer, &self.configurations, Moment(at)).unwrap()
        };
        let booted = boot(&identity, peer, asked);
        let id = self.machines().into_iter().find(|id| !before.contains(id)).unwrap();
        let operator = Actor::token("alice", TokenRole::Operate, None);
        let act = |action| {
            let now = Moment(asked + 60);
            self.store.act(&[id.into()], action, &operator, &self.configurations, now).unwrap();
        };
        let mut reports = None;
        if let Some((configuration, report)) = booted.tokens {
            if matches!(come, MachineState::Booting) {
                // Another client asks as this machine.
                boot(&identity, [192, 0, 2, 66].into(), asked + 20);
            } else {
                let token = configuration.expose();
                self.store
                    .take(token, peer, &self.configurations, 3600, Moment(asked + 40))
                    .unwrap()
                    .unwrap();
            }
            reports = Some(report);
        }
        match come {
            MachineState::Denied => act(OperatorAction::Deny),
            MachineState::Redeploy => act(OperatorAction::Redeploy),
            _ => {}
        }
        self.tokens.extend(reports.map(|report| (name.to_owned(), report.expose().to_owned())));
        self.ids.push(id);
        let mut run = Run { scene: self, name, seq: 0, at: NOW.0 };
        run.tell(come);
    }
}

/// The reports of one machine.
struct Run<'a> {
    scene: &'a Scene,
    name: &'a str,
    seq: u64,
    /// The time of a report in seconds, by every clock.
    at: u64,
}

const IMAGE: u64 = 1_342_177_280;
const IMAGES: u64 = 8_804_682_957;

impl Run<'_> {
    fn tell(&mut self, come: &MachineState) {
        match come {
            MachineState::Unknown
            | MachineState::Guest
            | MachineState::Denied
            | MachineState::Redeploy
            | MachineState::Booting => {}
            MachineState::Preflight => self.begin(4),
            MachineState::Writing(part) => self.writing(*part, 0),
            MachineState::Silent => self.writing(17, 400),
            MachineState::Seeding(part) => {
                self.whole(120);
                self.count("images", "Writing the container images", IMAGES, *part, 0);
            }
            MachineState::Finishing => {
                self.whole(20);
                self.steps(
                    2,
                    &[("images", "Writing the container images"), ("node", "Writing the node document")],
                );
                self.step("prove", "Checking the installed disk", StepState::Started);
            }
            MachineState::Rebooting => self.done(25),
            MachineState::Installed => self.done(700),
            MachineState::Joining => self.node(NodeReport {
                stage: "server".into(),
                detail: "https://192.0.2.10:9345 does not answer: connection refused".into(),
                ..NodeReport::default()
            }),
            MachineState::Joined => {
                self.node(NodeReport { ready: true, stage: "ready".into(), ..NodeReport::default() })
            }
            MachineState::NotJoined => self.node(NodeReport {
                failed: true,
                stage: "registered".into(),
                detail: "the cluster has another node of this name".into(),
                next: Some("Give the node a name of its own in `os.hostname`.".into()),
                ..NodeReport::default()
            }),
            MachineState::Failed => self.failed(
                &[
                    "installing, step image",
                    "writing to /dev/nvme0n1 (1.9 TB, Example NVMe PM9A3)",
                    "Input/output error (os error 5)",
                ],
                &[
                    "/dev/nvme0n1 is not bootable now; starting the install again starts over.",
                    "Look at the kernel's messages in the log; replace the disk if it tells of errors.",
                ],
            ),
            MachineState::Hostile => self.failed(
                &["</p><script>alert(2)</script>", "\" onmouseover=\"alert(3)", "a\u{202e}b & c"],
                &["<img src=x onerror=alert(4)>"],
            ),
        }
    }

    fn begin(&mut self, ago: u64) {
        self.at = NOW.0 - ago;
        self.step("network", "Setting up the network mgmt-br", StepState::Started);
        self.step("network", "Setting up the network mgmt-br", StepState::Done);
        self.step("preflight", "Checking the machine", StepState::Started);
    }

    fn whole(&mut self, ago: u64) {
        self.begin(ago);
        self.step("preflight", "Checking the machine", StepState::Done);
        self.steps(
            1,
            &[
                ("verify-medium", "Checking http://192.0.2.1:8080/medium"),
                ("wipe", "Erasing the disk"),
                ("partition", "Writing the partition table"),
                ("esp", "Writing the boot files"),
                ("image", "Writing the OS image"),
                ("read-back", "Reading the OS image back"),
                ("filesystems", "Making file systems"),
            ],
        );
    }

    fn writing(&mut self, part: u64, ago: u64) {
        self.begin(ago + 12);
        self.step("preflight", "Checking the machine", StepState::Done);
        self.steps(
            1,
            &[
                ("verify-medium", "Checking http://192.0.2.1:8080/medium"),
                ("wipe", "Erasing the disk"),
                ("partition", "Writing the partition table"),
            ],
        );
        self.count("image", "Writing the OS image", IMAGE, part, ago);
    }

    fn steps(&mut self, seconds: u64, steps: &[(&str, &str)]) {
        for (step, message) in steps {
            self.step(step, message, StepState::Started);
            self.at += seconds;
            self.step(step, message, StepState::Done);
        }
    }

    /// A step of `total` bytes that is `part` percent done, `ago` seconds before now.
    fn count(&mut self, step: &str, message: &str, total: u64, part: u64, ago: u64) {
        let counts = [
            (StepState::Started, 0),
            (StepState::Progress, part.saturating_sub(12)),
            (StepState::Progress, part),
        ];
        for (index, (state, part)) in counts.into_iter().enumerate() {
            self.at = NOW.0 - ago - 2 * (2 - index as u64);
            let (bytes, total) = (Some(total / 100 * part), Some(total));
            let event = Told { bytes, total, ..self.event(step, message, state) };
            self.send(&[ReportLine::Event(event)]);
        }
    }

    fn done(&mut self, ago: u64) {
        self.whole(ago + 60);
        self.at = NOW.0 - ago - 10;
        self.steps(2, &[("images", "Writing the container images"), ("node", "Writing the node document")]);
        self.steps(
            1,
            &[
                ("boot-code", "Writing GRUB for BIOS"),
                ("prove", "Checking the installed disk"),
                ("commit", "Making the disk bootable"),
            ],
        );
        self.at = NOW.0 - ago;
        let end = Told { exit_code: Some(0), ..self.event("run", "Installation complete", StepState::Done) };
        self.send(&[ReportLine::Event(end)]);
    }

    /// An install, and a report of its node.
    fn node(&mut self, node: NodeReport) {
        self.done(700);
        self.at = NOW.0 - 80;
        self.send(&[ReportLine::Node(node)]);
    }

    /// The end of an install and a report of its node, in one request.
    fn at_once(&mut self, node: NodeReport) {
        let end = Told { exit_code: Some(0), ..self.event("run", "Installation complete", StepState::Done) };
        self.send(&[ReportLine::Event(end), ReportLine::Node(node)]);
    }

    fn failed(&mut self, causes: &[&str], hints: &[&str]) {
        self.begin(100);
        self.step("preflight", "Checking the machine", StepState::Done);
        self.steps(
            1,
            &[("verify-medium", "Checking http://192.0.2.1:8080/medium"), ("wipe", "Erasing the disk")],
        );
        self.step("image", "Writing the OS image", StepState::Started);
        self.at += 9;
        self.step("image", "Writing the OS image", StepState::Failed);
        let end = Told { exit_code: Some(6), ..self.event("run", "Installation failed", StepState::Failed) };
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let failure = RunFailure { causes: texts(causes), hints: texts(hints), exit_code: 6 };
        let log = format!(
            "[  214.882113] nvme0n1: I/O Cmd(0x1) @ LBA 12582912, 2048 blocks, I/O Error (sct 0x2 / sc 0x80)\n\
             [  214.882117] critical medium error, dev nvme0n1, sector 12582912 op 0x1:(WRITE)\n\n\
             Install NQRust Hypervisor 0.1.0 on /dev/nvme0n1\n\n\
             [ ok ] Checking the machine\n\
             [ ok ] Checking http://192.0.2.1:8080/medium\n\
             [ ok ] Erasing the disk\n\
             [....] Writing the OS image (1.2 GiB)\n\
             [FAIL] Writing the OS image\n\
             error: {}\n",
            causes.join("\n  because: ")
        );
        self.send(&[ReportLine::Event(end), ReportLine::Failure(failure), ReportLine::Log(log)]);
    }

    fn step(&mut self, step: &str, message: &str, state: StepState) {
        let event = self.event(step, message, state);
        self.send(&[ReportLine::Event(event)]);
    }

    fn event(&mut self, step: &str, message: &str, state: StepState) -> Told {
        self.seq += 1;
        let (time, step, message) = (Moment(self.at).to_string(), step.to_owned(), message.to_owned());
        Told {
            v: 1,
            seq: self.seq,
            time,
            step,
            state,
            bytes: None,
            total: None,
            message,
            details: None,
            result: None,
            part: None,
            exit_code: None,
        }
    }

    fn send(&self, lines: &[ReportLine]) {
        let hostname = Some(self.name.to_owned()).filter(|name| !name.starts_with('<'));
        let product = Some("NQRust Hypervisor 0.1.0".to_owned());
        let hello =
            StreamHeader { v: 1, run: Uuid::from_u128(7), machine: Identity::default(), hostname, product };
        let lines = [ReportLine::Hello(hello)].into_iter().chain(lines.iter().cloned());
        let body: String = lines.map(|line| serde_json::to_string(&line).unwrap() + "\n").collect();
        let path = format!("/v1/report/{}", self.scene.tokens[self.name]);
        let request =
            FleetRequest { method: "POST", path: &path, body: body.as_bytes(), ..FleetRequest::default() };
        let reply = self.scene.answer(&request, Moment(self.at));
        assert_eq!(reply.status, 204, "{}", String::from_utf8_lossy(&reply.body));
    }
}

impl Scene {
    fn machines(&self) -> Vec<MachineId> {
        self.store.list(usize::MAX).unwrap().0.iter().map(|machine| machine.id).collect()
    }

    /// Lets a client send the identifiers of the first two machines.
    pub(crate) fn dispute(&self) {
        let (machines, ..) = self.store.list(usize::MAX).unwrap();
        let find = |id| machines.iter().find(|machine| machine.id == id).unwrap();
        let mut identity = find(self.ids[0]).identity.clone();
        identity.macs.extend(&find(self.ids[1]).identity.macs);
        let peer = [192, 0, 2, 66].into();
        self.store.boot(&identity, peer, &self.configurations, Moment(NOW.0 - 90)).unwrap();
    }

    /// Lets a machine report the end of its install.
    pub(crate) fn finish(&self, name: &str) {
        let mut run = Run { scene: self, name, seq: 1000, at: NOW.0 };
        let end = Told { exit_code: Some(0), ..run.event("run", "Installation complete", StepState::Done) };
        run.send(&[ReportLine::Event(end)]);
    }
}

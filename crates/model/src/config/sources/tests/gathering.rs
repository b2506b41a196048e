//! Which source is asked when, and what stops an install.

use std::sync::LazyLock;

use anyhow::{Result, bail};

use super::super::state::{
    Gathering, GatheringMachine, SourceAction, SourceReader, SourceRequest, gather, run,
};
use super::*;
use base::failure::{Class, Failure, class_of, render};
use document::shape::Shape;

/// A shape with the keys that lead from source to source.
static SHAPE: LazyLock<Shape> = LazyLock::new(|| {
    let text = || Shape::Text { format: None, secret: false };
    let install = ["config_url", "config_sha256", "medium", "device"].map(|key| (key.to_owned(), text()));
    let certificates = ("ca_certificates".to_owned(), Shape::List(Box::new(text())));
    Shape::Record(
        vec![(
            "install".to_owned(),
            Shape::Record(install.into_iter().chain([certificates]).collect(), Vec::new()),
        )],
        Vec::new(),
    )
});

/// Sources that say what a test wants, and the order in which they were asked.
#[derive(Default)]
struct FakeSources {
    medium: Option<&'static str>,
    volume: Option<&'static str>,
    line: &'static str,
    url: Option<&'static str>,
    broken: &'static str,
    asked: Vec<String>,
}

impl FakeSources {
    fn ask(&mut self, source: &str, detail: &str) -> Result<()> {
        self.asked.push(format!("{source} {detail}").trim().to_owned());
        if source == self.broken {
            return Err(Failure::new(Class::DiskIo, format!("{source} is broken")).into());
        }
        Ok(())
    }
}

impl SourceReader for FakeSources {
    fn medium(&mut self, url: Option<&SourceRequest>) -> Result<Vec<Document>> {
        self.ask("medium", url.map_or("", |request| &request.url))?;
        let embedded = self.medium.map(|text| yaml(SourceKind::Embedded, text));
        let defaults = yaml(SourceKind::Defaults, "install: {device: default}\n");
        Ok([defaults].into_iter().chain(embedded).collect())
    }

    fn volume(&mut self) -> Result<Option<Document>> {
        self.ask("volume", "")?;
        Ok(self.volume.map(|text| yaml(SourceKind::Volume, text)))
    }

    fn command_line(&mut self) -> Result<String> {
        self.ask("line", "")?;
        Ok(self.line.to_owned())
    }

    fn fetch(&mut self, request: &SourceRequest) -> Result<Document> {
        self.ask("url", &request.url)?;
        match self.url {
            Some(text) => Ok(yaml(SourceKind::Url, text)),
            None => bail!("nothing there"),
        }
    }
}

fn at_hand() -> Gathering {
    Gathering { medium_at_hand: true, ..Gathering::default() }
}

fn order(gathering: Gathering, mut fakes: FakeSources) -> (Vec<String>, Vec<SourceKind>) {
    let mut machine = GatheringMachine::new(gathering, &SHAPE);
    run(&mut machine, &mut fakes).unwrap();
    (fakes.asked, machine.documents().iter().map(Document::kind).collect())
}

#[test]
fn sources_are_asked_in_order_and_documents_come_by_strength() {
    let fakes = FakeSources {
        medium: Some("install: {config_url: http://weak/}"),
        volume: Some("install: {device: volume}"),
        line: "nqrust.install.config_url=http://strong/",
        url: Some("install: {device: url}"),
        ..FakeSources::default()
    };
    let (asked, kinds) = order(at_hand(), fakes);
    assert_eq!(asked, ["medium", "volume", "line", "url http://strong/"]);
    let expected = [
        SourceKind::Defaults,
        SourceKind::Embedded,
        SourceKind::Volume,
        SourceKind::Url,
        SourceKind::KernelParameters,
    ];
    assert_eq!(kinds, expected);
}

#[test]
fn absent_sources_are_no_error_and_nothing_is_fetched_that_nobody_names() {
    let (asked, kinds) = order(at_hand(), FakeSources::default());
    assert_eq!(asked, ["medium", "volume", "line"]);
    assert_eq!(kinds, [SourceKind::Defaults, SourceKind::KernelParameters]);
    let (asked, _) = order(Gathering::default(), FakeSources::default());
    assert_eq!(asked, ["volume", "line"], "no medium is asked that is neither there nor named");
}

#[test]
fn a_machine_without_a_medium_finds_it_and_then_what_it_names() {
    let fakes = FakeSources {
        line: "nqrust.install.medium=http://medium/",
        medium: Some("install: {config_url: http://late/}"),
        url: Some("install: {device: url}"),
        ..FakeSources::default()
    };
    let (asked, _) = order(Gathering::default(), fakes);
    assert_eq!(asked, ["volume", "line", "medium http://medium/", "url http://late/"]);
    let fakes = FakeSources {
        line: "nqrust.install.config_url=http://first/",
        url: Some("install: {medium: http://second/}"),
        ..FakeSources::default()
    };
    let (asked, _) = order(Gathering::default(), fakes);
    assert_eq!(asked, ["volume", "line", "url http://first/", "medium http://second/"]);
}

#[test]
fn a_file_stands_in_place_of_three_sources_and_a_given_line_of_the_kernels_own() {
    let gathering =
        || Gathering { file: Some(yaml(SourceKind::File, "install: {device: file}")), ..at_hand() };
    let fakes = || FakeSources {
        medium: Some("install: {device: embedded}"),
        line: "nqrust.install.config_url=http://x/",
        ..FakeSources::default()
    };
    let (asked, kinds) = order(gathering(), fakes());
    assert_eq!(asked, ["medium", "line"]);
    assert_eq!(kinds, [SourceKind::Defaults, SourceKind::File, SourceKind::KernelParameters]);
    let given = Gathering { command_line: Some("nqrust.install.device=x".into()), ..gathering() };
    assert_eq!(order(given, fakes()).0, ["medium"]);
    let ignoring = Gathering { ignore_command_line: true, ..gathering() };
    assert_eq!(order(ignoring, fakes()).1, [SourceKind::Defaults, SourceKind::File]);
}

#[test]
fn a_source_that_fails_ends_it_and_nothing_takes_its_place() {
    for (broken, after) in [("medium", 1), ("volume", 2), ("line", 3), ("url", 4)] {
        let mut fakes = FakeSources {
            medium: Some("install: {device: fine}"),
            line: "nqrust.install.config_url=http://x/",
            url: Some(""),
            broken,
            ..FakeSources::default()
        };
        let mut machine = GatheringMachine::new(at_hand(), &SHAPE);
        let error = run(&mut machine, &mut fakes).unwrap_err();
        assert_eq!(class_of(&error), Class::DiskIo, "{broken}");
        assert_eq!(fakes.asked.len(), after, "{broken}: {:?}", fakes.asked);
    }
}

#[test]
fn mistakes_at_hand_are_told_before_anything_is_fetched() {
    let mut fakes = FakeSources {
        medium: Some("install: {devise: x}"),
        line: "nqrust.install.config_url=http://x/ nqrust.install.nonsense=1",
        ..FakeSources::default()
    };
    let error = run(&mut GatheringMachine::new(at_hand(), &SHAPE), &mut fakes).unwrap_err();
    assert_eq!((class_of(&error), fakes.asked.len()), (Class::Invalid, 3));
    let told = render(&error);
    assert!(told.contains("devise") && told.contains("nonsense"), "{told}");
}

#[test]
fn the_request_says_who_names_it_and_what_to_trust() {
    let mut machine = GatheringMachine::new(Gathering::default(), &SHAPE);
    machine.take(
        &SourceAction::Volume,
        vec![yaml(SourceKind::Volume, "install: {config_sha256: ab, ca_certificates: [pem]}")],
    );
    let line = Document::command_line("nqrust.install.config_url=http://x/", &SHAPE);
    machine.take(&SourceAction::CommandLine, vec![line]);
    let expected = SourceRequest {
        url: "http://x/".into(),
        named_by: "kernel command line".into(),
        sha256: Some("ab".into()),
        authorities: vec!["pem".into()],
    };
    assert_eq!(machine.want().unwrap(), SourceAction::Fetch(expected));
}

#[test]
fn authorities_that_came_with_the_medium_are_trusted_whatever_documents_name() {
    use testing::http::AUTHORITY;
    struct CustomizedMedium(Vec<String>);
    impl SourceReader for CustomizedMedium {
        fn medium(&mut self, _: Option<&SourceRequest>) -> Result<Vec<Document>> {
            Ok(vec![yaml(SourceKind::Embedded, "install: {config_url: 'http://x/'}\n")])
        }
        fn authorities(&self) -> Vec<String> {
            vec![AUTHORITY.to_owned()]
        }
        fn volume(&mut self) -> Result<Option<Document>> {
            Ok(None)
        }
        fn command_line(&mut self) -> Result<String> {
            Ok(String::new())
        }
        fn fetch(&mut self, request: &SourceRequest) -> Result<Document> {
            self.0.clone_from(&request.authorities);
            Ok(yaml(SourceKind::Url, "os: {hostname: a}\n"))
        }
    }
    let mut customized = CustomizedMedium(Vec::new());
    let combined = gather(at_hand(), &mut customized).unwrap();
    assert_eq!(customized.0, [AUTHORITY]);
    assert_eq!(combined.authorities, [AUTHORITY]);
    assert_eq!(combined.config.install.ca_certificates.len(), 1);
}

#[test]
fn neither_a_fetched_document_nor_a_file_leads_to_another_url() {
    use super::super::combine::CheckedDocuments;
    let text = "install: {config_url: http://next/}";
    let fetched = FakeSources {
        line: "nqrust.install.config_url=http://x/",
        url: Some(text),
        ..FakeSources::default()
    };
    let filed = Gathering { file: Some(yaml(SourceKind::File, text)), ..Gathering::default() };
    for (gathering, mut fakes, code) in
        [(at_hand(), fetched, "chained-config-url"), (filed, FakeSources::default(), "url-not-followed")]
    {
        let mut machine = GatheringMachine::new(gathering, &SHAPE);
        run(&mut machine, &mut fakes).unwrap();
        let documents = machine.documents();
        let found = CheckedDocuments::of(documents, &SHAPE).verdict(documents).unwrap_err();
        let found: Vec<_> = found.0.iter().map(|d| (d.code, d.path.as_str(), d.column)).collect();
        assert_eq!(found, [(code, "install.config_url", 23)]);
    }
}

#[test]
fn defaults_alone_are_no_configuration() {
    struct EmptySources;
    impl SourceReader for EmptySources {
        fn medium(&mut self, _: Option<&SourceRequest>) -> Result<Vec<Document>> {
            Ok(vec![yaml(SourceKind::Defaults, "os: {modules: [kvm]}\n")])
        }
        fn volume(&mut self) -> Result<Option<Document>> {
            Ok(None)
        }
        fn command_line(&mut self) -> Result<String> {
            Ok("quiet nqrust.mode=install\n".into())
        }
        fn fetch(&mut self, _: &SourceRequest) -> Result<Document> {
            bail!("nobody names a URL")
        }
    }
    let error = gather(at_hand(), &mut EmptySources).unwrap_err();
    assert_eq!(class_of(&error), Class::Invalid);
    let answers = Some(Document::answers(&serde_json::json!({ "os": { "hostname": "a" } })));
    let combined = gather(Gathering { answers, ..at_hand() }, &mut EmptySources).unwrap();
    assert_eq!((combined.config.os.modules.len(), combined.entries.len()), (1, 2));
}

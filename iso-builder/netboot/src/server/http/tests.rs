use super::*;
use crate::test_support::{configurations, medium, registry};
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_RANGE, ETAG, HeaderName, IF_NONE_MATCH, RANGE, VARY,
};
use medium::network_boot::files::MediumFiles;
use medium::network_boot::system::BootSystem;
use model::release::{MediumKind, SIGNATURES};
use std::net::Ipv4Addr;
use transfer::server::served_file::ServedFile;

const FOREVER: &str = "public, max-age=31536000, immutable";
const ASK: &str = "no-cache";
const NEVER: &str = "no-store";

struct Bench {
    router: Arc<Router>,
    /// The digest of the release with a slash, and the path of a blob on the medium.
    folder: String,
    blob: String,
    _directories: (tempfile::TempDir, testing::medium::SampleMedium),
}

fn bench() -> Bench {
    let (directory, sample) = (tempfile::tempdir().unwrap(), medium(MediumKind::Full));
    std::fs::write(sample.tree().join(SIGNATURES), "untrusted comment: a\n").unwrap();
    let files = MediumFiles::open(&sample.tree()).unwrap();
    let system = BootSystem::of(&files, &[]).unwrap();
    let mut router =
        Router::new(files, system, registry(directory.path()), configurations(&["serial-CZ1.yaml"]));
    router.loaders.insert("undionly.kpxe".into(), ServedFile::in_memory(b"loader".to_vec()));
    let folder = router.files.folder();
    let blob = sample.release.payloads.iter().find(|payload| payload.path.starts_with("images/blobs/"));
    let blob = blob.unwrap().path.clone();
    Bench { router: Arc::new(router), folder, blob, _directories: (directory, sample) }
}

impl Bench {
    fn ask(&self, method: &str, path: &str, fields: &[(HeaderName, &str)]) -> Response<ResponseBody> {
        let mut request = Request::builder().method(method).uri(path).header(HOST, "127.0.0.1");
        for (name, value) in fields {
            request = request.header(name, *value);
        }
        let request = request.body(Empty::<Bytes>::new()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let response = respond(Arc::clone(&self.router), Ipv4Addr::LOCALHOST.into(), request);
        let Ok(response) = runtime.block_on(response);
        response
    }

    fn text(&self, path: &str) -> String {
        match self.ask("GET", path, &[]).into_body().into_parts() {
            transfer::server::body::BodyParts::Whole(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            other => panic!("{other:?}"),
        }
    }
}

fn field(response: &Response<ResponseBody>, name: HeaderName) -> Option<&str> {
    let mut values = response.headers().get_all(name).iter();
    let value = values.next().map(|value| value.to_str().unwrap());
    assert!(values.next().is_none(), "one field for each name");
    value
}

#[test]
fn caches_may_keep_what_a_digest_names_and_nothing_that_changes_or_is_secret() {
    let bench = bench();
    let Bench { folder, blob, .. } = &bench;
    let script = bench.text("/v1/boot?serial=CZ1");
    let configuration =
        script.split_whitespace().find_map(|word| word.split_once("nqrust.install.config_url="));
    let configuration = configuration.unwrap().1.strip_prefix("http://127.0.0.1").unwrap();
    let files = ["live/vmlinuz", "live/initrd", "live/rootfs.squashfs", "release.json"];
    let mut cases: Vec<(String, u16, &str)> =
        files.iter().map(|file| (format!("/medium/{file}"), 200, ASK)).collect();
    cases.extend(files.map(|file| (format!("/medium/{folder}{file}"), 200, FOREVER)));
    for (path, status, policy) in [
        (&*format!("/medium/{folder}{blob}"), 200, FOREVER),
        (&*format!("/medium/{blob}"), 200, FOREVER),
        (&*format!("/medium/{folder}{SIGNATURES}"), 200, ASK),
        (&*format!("/medium/{SIGNATURES}"), 200, ASK),
        (&*format!("/medium/{folder}live/other"), 404, NEVER),
        (&*format!("/medium/{}/live/initrd", "0".repeat(64)), 404, NEVER),
        ("/loaders/undionly.kpxe", 200, ASK),
        ("/boot.ipxe", 200, ASK),
        ("/grub/grub.cfg", 200, ASK),
        ("/v1/boot?serial=CZ1", 200, NEVER),
        ("/v1/boot?serial=CZ2", 200, NEVER),
        ("/v1/boot", 400, NEVER),
        ("/v1/grub/52-54-00-00-00-01", 200, NEVER),
        (configuration, 200, NEVER),
        // It was given with the line before.
        (configuration, 410, NEVER),
        ("/v1/config/0123", 404, NEVER),
        ("/v1/report/0123", 401, NEVER),
        ("/", 307, NEVER),
        ("/nothing", 404, NEVER),
        ("/fleet", 401, NEVER),
        ("/v1/fleet", 401, NEVER),
        ("/fleet/style.css", 200, ASK),
        ("/fleet/script.js", 200, ASK),
    ] {
        cases.push((path.to_owned(), status, policy));
    }
    for (path, status, policy) in &cases {
        let response = bench.ask("GET", path, &[]);
        let found = (response.status().as_u16(), field(&response, CACHE_CONTROL));
        assert_eq!(found, (*status, Some(*policy)), "{path}");
        assert_eq!(field(&response, VARY), None, "{path}");
    }
    let others = cases.iter().map(|(path, ..)| path).filter(|path| !path.starts_with("/v1/config"));
    for path in others {
        for method in ["POST", "PUT", "DELETE"] {
            let response = bench.ask(method, path, &[]);
            assert_eq!(field(&response, CACHE_CONTROL), Some(NEVER), "{method} {path}");
        }
    }
}

#[test]
fn what_a_cache_may_keep_has_a_strong_tag_and_comes_in_ranges() {
    let bench = bench();
    let path = format!("/medium/{}live/rootfs.squashfs", bench.folder);
    let whole = bench.ask("GET", &path, &[]);
    let tag = field(&whole, ETAG).unwrap();
    assert!(tag.starts_with('"') && field(&whole, ACCEPT_RANGES) == Some("bytes"), "{tag}");
    let part = bench.ask("GET", &path, &[(RANGE, "bytes=0-99")]);
    assert_eq!((part.status().as_u16(), field(&part, CACHE_CONTROL)), (206, Some(FOREVER)));
    assert_eq!((field(&part, ETAG), field(&part, CONTENT_RANGE)), (Some(tag), Some("bytes 0-99/300000")));
    let same = bench.ask("GET", &path, &[(IF_NONE_MATCH, tag)]);
    assert_eq!((same.status().as_u16(), field(&same, CACHE_CONTROL)), (304, Some(FOREVER)));
    let beyond = bench.ask("GET", &path, &[(RANGE, "bytes=300000-")]);
    assert_eq!((beyond.status().as_u16(), field(&beyond, CACHE_CONTROL)), (416, Some(NEVER)));
    let head = bench.ask("HEAD", &path, &[]);
    assert_eq!((head.status().as_u16(), field(&head, CACHE_CONTROL)), (200, Some(FOREVER)));
}

//! `installer apply`: writes the files of a node document below a root directory, and removes those that an earlier document had
//! asked for.
//!
//! Called at every boot on the new `/etc` of the root file system, by people on a running node, and by tests on any directory. People
//! can correct a document with mistakes, which changes nothing; a boot applies the rest of it.

use std::path::Path;

use anyhow::{Context, Result};
use nix::unistd::Uid;
use serde::Serialize;

use super::accounts::{Account, Accounts, MadeAccounts};
use super::render::{LOCALTIME, USER, ZONES, render};
use super::{applied, write_files};
use base::digest::{Digest, Hasher};
use base::files::{self, Owner, Root};
use cluster::configuration::{self, MachineSize};
use machine::hostname::hostname;
use machine::installed_node::line_of_mistake;
use machine::inventory::Nic;
use machine::keyboard::{self, Keymaps};
use machine::machine_id::MachineId;
use machine::nics::{CardSelectors, RememberedCards};
use machine::node_files::{NOTE, NodeFile, write};
use machine::paths::below;
use machine::seed;
use model::config::password::{self, PasswordKind};
use model::config::{self, InstallConfig, Secret, UsableDocument};

#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct ApplyOutcome {
    /// Files with new content, from the root.
    pub written: Vec<String>,
    /// Files that the document no longer asks for.
    pub removed: Vec<String>,
    /// Parts of the document without effect on a node, and why.
    pub warnings: Vec<String>,
    /// The arguments of `os.host` that the kernel gets from the next start on, if they are others than before; on a running node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_kernel_arguments: Option<Vec<String>>,
}

/// Applies the document at `document` to the directory `root`, which is not running, on this machine. A document with mistakes is
/// [`Class::Invalid`] and changes nothing.
pub fn apply(document: &Path, root: &Path) -> Result<ApplyOutcome> {
    apply_on(document, root, MachineSize::read(Path::new("/proc"))?, &[])
}

/// Applies what a boot can use of the document at `document` to the directory `root`; a warning tells of each mistake.
pub fn apply_usable(usable: &UsableDocument, document: &Path, root: &Path) -> Result<ApplyOutcome> {
    let size = MachineSize::read(Path::new("/proc"))?;
    let mut outcome = apply_config(&usable.config, document, root, size, &[])?;
    let mistake = |mistake: &config::Diagnostic| {
        format!("the node document has a mistake, and is applied without it: {}", line_of_mistake(mistake))
    };
    outcome.warnings.splice(0..0, usable.mistakes.iter().map(mistake));
    Ok(outcome)
}

/// Applies the document at `document` to the directory `root`, on a machine of this size with these network cards; empty if they
/// are not known.
pub fn apply_on(document: &Path, root: &Path, size: MachineSize, present: &[Nic]) -> Result<ApplyOutcome> {
    apply_config(&config::load(document)?, document, root, size, present)
}

/// Applies `config`, which is what is used of the document at `document`.
fn apply_config(
    config: &InstallConfig,
    document: &Path,
    root: &Path,
    size: MachineSize,
    present: &[Nic],
) -> Result<ApplyOutcome> {
    let machine = MachineId::beside(document)?;
    let digest = digest_of(document)?;
    let remembered = RememberedCards::beside(document);
    let unread =
        remembered.as_ref().err().map(|error| format!("network cards are found by their names: {error:#}"));
    let cards = CardSelectors::of(config, &remembered.unwrap_or_default(), present);
    let mut files = render(config, machine.as_ref(), &cards);
    let (name, hypervisor) = (hostname(config, machine.as_ref()), configuration::ships_hypervisor(root));
    files.extend(configuration::files(config, name.as_deref(), size, hypervisor));
    files.extend(configuration::shipped(config, root)?);
    let zone = config.os.timezone.as_deref().filter(|zone| !root.join(ZONES).join(zone).is_file());
    files.retain(|file| zone.is_none() || file.path != LOCALTIME);
    let keyboard = config.os.keyboard.as_deref();
    let keymap = keyboard.map(|name| (name, Keymaps::of(root).find(name).map(str::to_owned)));
    files.extend(keymap.iter().filter_map(|(_, keymap)| Some(console(keymap.as_deref()?))));
    let further = &config.os.write_files;
    // Files of the document have precedence over files made from its other keys.
    files.retain(|file| !further.iter().any(|further| further.path.trim_start_matches('/') == file.path));
    let mut owned: Vec<String> = files.iter().map(|file| file.path.clone()).collect();
    owned.extend(further.iter().map(|file| file.path.trim_start_matches('/').to_owned()));
    let users = users(config, machine.as_ref())?;
    let MadeAccounts { accounts, users, mut warnings } = make_accounts(root, &users)?;
    files.extend(account_files(&accounts));
    let before = applied::before(root)?;
    warnings.extend(unfetched(config));
    warnings.extend(unread);
    warnings.extend(zone.map(|zone| {
        format!(
            "the time zone is UTC: this system has no {zone}; `timedatectl list-timezones` prints what it has"
        )
    }));
    warnings.extend(keymap.filter(|(_, keymap)| keymap.is_none()).map(|(name, _)| {
        let (lacks, default) = (keyboard::missing(name), keyboard::DEFAULT);
        format!("the keyboard layout is {default}: {lacks}; `localectl list-keymaps` prints what it has")
    }));
    let mut outcome = ApplyOutcome { warnings, ..ApplyOutcome::default() };
    let tree = Root::open(root)?.with_homes(accounts.homes());
    applied::announce(&tree, &before, &owned)?;
    let mut left = Vec::new();
    for path in before.iter().filter(|path| !owned.contains(path)) {
        match tree.remove(path) {
            Ok(true) => outcome.removed.push(path.clone()),
            Ok(false) => {}
            // A user who can put a directory in the place of a file must not be able to stop the boot.
            Err(error) => {
                outcome.warnings.push(format!("/{path} is not removed: {error:#}"));
                left.push(path.clone());
            }
        }
    }
    for file in &files {
        if write(&tree, file)? {
            outcome.written.push(file.path.clone());
        }
    }
    for user in &users {
        make_home(root, user)?;
    }
    for file in further {
        match write_files::write(&tree, file, &accounts) {
            Ok(true) => outcome.written.push(file.path.trim_start_matches('/').to_owned()),
            Ok(false) => {}
            Err(error) => outcome.warnings.push(format!("{} is not written: {error:#}", &*file.path)),
        }
    }
    // The next apply tries again.
    owned.extend(left);
    applied::finish(&tree, digest, &owned)?;
    Ok(outcome)
}

/// The settings of virtual terminals (vconsole.conf(5)), which the unit `nqrust-keyboard` reads.
fn console(keymap: &str) -> NodeFile {
    NodeFile::new("etc/vconsole.conf", 0o644, format!("{NOTE}KEYMAP={keymap}\n"))
}

/// References in the document of a node. A boot must not depend on a server, so only the installer follows them.
fn unfetched(config: &InstallConfig) -> Vec<String> {
    let told = |reference: install::resolve::Reference| {
        let install::resolve::Reference { key, from } = reference;
        format!("`{key}` refers to {from}, which only the installer fetches; write the value itself there")
    };
    install::resolve::references(config).into_iter().map(told).collect()
}

/// The digest of the document and of the machine id beside it. A change of it means that the document is not applied.
pub fn digest_of(document: &Path) -> Result<Digest> {
    let mut hasher = Hasher::default();
    hasher.update(files::read_text(document)?.as_bytes());
    if let Some(machine) = MachineId::beside(document)? {
        hasher.update(machine.to_string().as_bytes());
    }
    Ok(hasher.finish())
}

fn users(config: &InstallConfig, machine: Option<&MachineId>) -> Result<Vec<Account>> {
    let hash = |user: &str, password: &Option<Secret>| -> Result<Option<Secret>> {
        password.as_ref().map(|password| hashed(user, password, machine)).transpose()
    };
    let mut users = vec![Account::login(hash(USER, &config.os.password)?)];
    for (index, user) in config.os.users.iter().enumerate() {
        users.push(Account::further(index, &user.name, user.sudo, hash(&user.name, &user.password)?));
    }
    Ok(users)
}

/// The hash of a user's password. Clear text in the document of a node is hashed with a salt of the node and the user, so that
/// the same document gives the same bytes.
fn hashed(user: &str, secret: &Secret, machine: Option<&MachineId>) -> Result<Secret> {
    match password::kind(secret.expose()) {
        PasswordKind::Clear => {
            let mut hasher = Hasher::default();
            hasher.update(b"nqrust password salt ");
            hasher.update(machine.map(ToString::to_string).unwrap_or_default().as_bytes());
            if user != USER {
                hasher.update(user.as_bytes());
            }
            let digest = hasher.finish();
            let digest = digest.as_bytes();
            let salt = std::array::from_fn(|index| digest[index]);
            password::hash_with_salt(secret.expose(), &salt)
        }
        // The checks of the document have refused unsupported hashes, and what locks an account.
        PasswordKind::Hash | PasswordKind::Lock | PasswordKind::Unsupported(_) => Ok(secret.clone()),
    }
}

fn make_accounts(root: &Path, users: &[Account]) -> Result<MadeAccounts> {
    let read = |name: &str| files::read_text(&root.join("etc").join(name));
    let accounts = Accounts {
        passwd: read("passwd")?,
        group: read("group")?,
        shadow: read("shadow")?,
        gshadow: read("gshadow")?,
    };
    accounts.with_users(users).with_context(|| format!("adding users below {}", root.display()))
}

fn account_files(accounts: &Accounts) -> [NodeFile; 4] {
    let Accounts { passwd, group, shadow, gshadow } = accounts;
    [
        NodeFile::new("etc/passwd", 0o644, passwd.clone()),
        NodeFile::new("etc/group", 0o644, group.clone()),
        NodeFile::new("etc/shadow", 0o640, shadow.clone()),
        NodeFile::new("etc/gshadow", 0o640, gshadow.clone()),
    ]
}

/// Makes the home directory of a user from the image's skeleton, once.
fn make_home(root: &Path, user: &Account) -> Result<()> {
    let home = below(root, &user.home());
    if home.symlink_metadata().is_ok() {
        return Ok(());
    }
    let owner = Uid::effective().is_root().then_some(Owner { user: user.id, group: user.id });
    seed::copy_whole(&root.join("etc/skel"), &home, owner, 0o700)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::accounts::tests::debian;
    use crate::applied::{LASTING, MANIFEST};
    use base::failure::{Class, class_of};
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    /// A root directory with what `apply` finds in a Debian image.
    pub(crate) fn image() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let etc = root.path().join("etc");
        fs::create_dir_all(etc.join("skel")).unwrap();
        fs::write(etc.join("skel/.profile"), "skeleton").unwrap();
        let accounts = debian();
        fs::write(etc.join("passwd"), accounts.passwd).unwrap();
        fs::write(etc.join("group"), accounts.group).unwrap();
        fs::write(etc.join("shadow"), accounts.shadow).unwrap();
        fs::write(etc.join("gshadow"), accounts.gshadow).unwrap();
        root
    }

    fn run(root: &Path, document: &str) -> Result<ApplyOutcome> {
        let oem = tempfile::tempdir().unwrap();
        let path = oem.path().join("node.yaml");
        fs::write(&path, document).unwrap();
        fs::write(oem.path().join("machine-id"), "0123456789abcdef0123456789abcdef\n").unwrap();
        apply_on(&path, root, MachineSize { cpus: 4, memory: 8192 }, &[])
    }

    /// Every file below `root` with its mode; a link with its target and no mode.
    fn snapshot(root: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
        let files = walkdir::WalkDir::new(root).into_iter().map(|entry| entry.unwrap());
        files
            .filter(|entry| !entry.file_type().is_dir())
            .map(|entry| {
                let name = entry.path().strip_prefix(root).unwrap().to_owned();
                if let Ok(target) = fs::read_link(entry.path()) {
                    return (name, (0, target.into_os_string().into_encoded_bytes()));
                }
                let mode = entry.metadata().unwrap().permissions().mode() & 0o7777;
                (name, (mode, fs::read(entry.path()).unwrap()))
            })
            .collect()
    }

    #[test]
    fn files_that_hold_secrets_are_not_for_everybody() {
        let root = image();
        run(root.path(), "os: {password: hunter2}\ntoken: marked-token\n").unwrap();
        let files = snapshot(root.path());
        let mode = |path: &str| files[Path::new(path)].0;
        assert_eq!((mode("etc/passwd"), mode("etc/shadow"), mode("etc/gshadow")), (0o644, 0o640, 0o640));
        assert_eq!(mode("etc/NetworkManager/system-connections/nqrust-mgmt-any.nmconnection"), 0o600);
        assert_eq!(mode("etc/sudoers.d/90-nqrust"), 0o440);
        for (path, (_, bytes)) in &files {
            let text = String::from_utf8_lossy(bytes);
            assert!(!text.contains("hunter2"), "{}", path.display());
            assert!(!text.contains("marked-token") || mode(&path.to_string_lossy()) == 0o600);
        }
        let config = &files[Path::new("etc/rancher/rke2/config.yaml.d/90-nqrust-cluster.yaml")];
        assert!(String::from_utf8_lossy(&config.1).contains("marked-token"), "the test looks at something");
        let shadow = String::from_utf8_lossy(&files[Path::new("etc/shadow")].1);
        assert!(shadow.contains("\nrancher:$y$j9T$"));
    }

    #[test]
    fn the_login_user_gets_a_home_once() {
        let root = image();
        run(root.path(), "{}").unwrap();
        let home = below(root.path(), "/home/rancher");
        assert_eq!(fs::metadata(&home).unwrap().permissions().mode() & 0o7777, 0o700);
        fs::write(home.join(".profile"), "own").unwrap();
        run(root.path(), "os: {hostname: a}").unwrap();
        assert_eq!(fs::read(home.join(".profile")).unwrap(), b"own");
    }

    #[test]
    fn a_reference_in_the_document_of_a_node_is_told_and_the_rest_applied() {
        let root = image();
        let text = "token_file: /t\nos: {hostname: a, ssh_authorized_keys: [github:me]}";
        let outcome = run(root.path(), text).unwrap();
        assert!(outcome.written.contains(&"etc/hostname".to_owned()));
        let [token, key] = &outcome.warnings[..] else { panic!("{outcome:?}") };
        assert!(token.starts_with("`token` refers to /t, which only the installer fetches"), "{token}");
        assert!(key.contains("https://github.com/me.keys"), "{key}");
        assert!(!root.path().join("etc/ssh/authorized_keys.d/rancher").exists());
    }

    #[test]
    fn a_document_with_mistakes_changes_nothing() {
        let root = image();
        let before = snapshot(root.path());
        let error = run(root.path(), "os: {hostname: Bad_Name}").unwrap_err();
        assert_eq!(class_of(&error), Class::Invalid);
        assert_eq!(snapshot(root.path()), before);
    }

    #[test]
    fn an_apply_that_was_cut_short_leaves_nothing_behind() {
        let root = image();
        // A directory in the place of a file makes the first apply fail half-way.
        let obstacle = root.path().join("etc/systemd/timesyncd.conf.d/nqrust.conf/x");
        fs::create_dir_all(&obstacle).unwrap();
        let cut = "os: {modules: [kvm], ntp_servers: [a]}";
        assert!(run(root.path(), cut).is_err());
        assert!(root.path().join("etc/modules-load.d/nqrust.conf").exists());
        fs::remove_dir_all(root.path().join("etc/systemd")).unwrap();
        let fresh = image();
        run(root.path(), "{}").unwrap();
        run(fresh.path(), "{}").unwrap();
        assert_eq!(snapshot(root.path()), snapshot(fresh.path()));
    }

    #[test]
    fn what_lasts_in_var_is_removed_after_etc_has_started_fresh() {
        let root = image();
        run(root.path(), "token: a\nsystem_settings: {ui-index: a}\ninstall: {vip: 192.0.2.10}\n").unwrap();
        let setting = root.path().join("var/lib/rancher/rke2/server/manifests/nqrust-setting-ui-index.yaml");
        let pod = root.path().join("var/lib/rancher/rke2/agent/pod-manifests/nqrust-vip.yaml");
        let others = setting.with_file_name("rke2-canal.yaml");
        fs::write(&others, "the distribution's own").unwrap();
        assert!(setting.exists() && pod.exists());
        // Like a boot: a new /etc, a /var that persists.
        fs::remove_dir_all(root.path().join("etc")).unwrap();
        let fresh = image();
        fs::rename(fresh.path().join("etc"), root.path().join("etc")).unwrap();
        run(root.path(), "token: a\ninstall: {vip: 192.0.2.10}\n").unwrap();
        assert!(!setting.exists() && pod.exists() && others.exists());
        run(root.path(), "install: {mode: install}").unwrap();
        assert!(!pod.exists() && others.exists());
        assert!(!root.path().join(LASTING).exists(), "an empty record says nothing");
    }

    #[test]
    fn what_the_image_ships_is_applied_and_gone_with_the_next_image() {
        let root = image();
        let directory = root.path().join(model::os_image::SHIPPED_MANIFESTS);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("manifest-web.yaml"), "shipped").unwrap();
        let document =
            "kubernetes: {manifests: [{name: web, content: '{apiVersion: v1, kind: A, metadata: {}}'}]}";
        run(root.path(), document).unwrap();
        let manifests = root.path().join("var/lib/rancher/rke2/server/manifests");
        let applied = manifests.join("image-manifest-web.yaml");
        assert_eq!(fs::read_to_string(&applied).unwrap(), "shipped");
        assert_eq!(fs::metadata(&applied).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(manifests.join("manifest-web.yaml").exists(), "the document has one of the same name");
        fs::remove_file(directory.join("manifest-web.yaml")).unwrap();
        let outcome = run(root.path(), document).unwrap();
        assert_eq!(outcome.removed, ["var/lib/rancher/rke2/server/manifests/image-manifest-web.yaml"]);
        assert!(!applied.exists());
    }

    #[test]
    fn files_in_var_are_recorded_before_they_are_written() {
        let root = image();
        // A directory in the place of a file makes the first apply fail half-way.
        let obstacle =
            root.path().join("var/lib/rancher/rke2/server/manifests/nqrust-setting-ui-source.yaml/x");
        fs::create_dir_all(&obstacle).unwrap();
        let document = "system_settings: {ui-index: a, ui-source: auto}";
        assert!(run(root.path(), document).is_err());
        let written = root.path().join("var/lib/rancher/rke2/server/manifests/nqrust-setting-ui-index.yaml");
        assert!(written.exists());
        fs::remove_dir_all(obstacle.parent().unwrap()).unwrap();
        fs::remove_dir_all(root.path().join("etc/nqrust")).unwrap();
        run(root.path(), "{}").unwrap();
        assert!(!written.exists());
    }

    #[test]
    fn a_record_that_points_elsewhere_is_refused() {
        let root = image();
        for (record, tree, other) in [(MANIFEST, "etc", "var/a"), (LASTING, "var", "etc/a")] {
            let record = root.path().join(record);
            fs::create_dir_all(record.parent().unwrap()).unwrap();
            for stray in [format!("{tree}/../victim"), format!("/{tree}/passwd"), other.to_owned()] {
                fs::write(&record, format!("{{\"document\": null, \"files\": [{stray:?}]}}")).unwrap();
                fs::write(root.path().join("victim"), "").unwrap();
                assert!(run(root.path(), "{}").is_err(), "{stray}");
                assert!(root.path().join("victim").exists());
            }
            fs::remove_file(&record).unwrap();
        }
    }

    #[test]
    fn files_of_the_document_are_written_told_of_and_removed_again() {
        let root = image();
        let text = "os: {write_files: [{path: /home/rancher/note, content: a}, {path: /etc/environment, content: mine}, \
                    {path: /etc/x, content: b, owner: nobody-here}]}";
        let outcome = run(root.path(), text).unwrap();
        assert_eq!(outcome.warnings, ["/etc/x is not written: there is no user nobody-here"]);
        assert_eq!(fs::read_to_string(root.path().join("etc/environment")).unwrap(), "mine");
        assert!(root.path().join("home/rancher/note").exists() && !root.path().join("etc/x").exists());
        // `/etc` is new at a boot; files elsewhere are still known.
        fs::remove_file(root.path().join(MANIFEST)).unwrap();
        let outcome = run(root.path(), "{}").unwrap();
        assert!(outcome.removed.contains(&"home/rancher/note".to_owned()), "{outcome:?}");
        assert!(!root.path().join("home/rancher/note").exists());
    }

    #[test]
    fn the_time_zone_is_that_of_the_document_where_the_image_has_it_and_utc_elsewhere() {
        let root = image();
        let localtime = root.path().join("etc/localtime");
        let berlin = "os: {timezone: Europe/Berlin}";
        let warning = "the time zone is UTC: this system has no Europe/Berlin; `timedatectl list-timezones` prints what it has";
        assert_eq!(run(root.path(), berlin).unwrap().warnings, [warning]);
        assert!(fs::symlink_metadata(&localtime).is_err());
        fs::create_dir_all(root.path().join("usr/share/zoneinfo/Europe")).unwrap();
        fs::write(root.path().join("usr/share/zoneinfo/Europe/Berlin"), "").unwrap();
        assert!(run(root.path(), berlin).unwrap().warnings.is_empty());
        assert_eq!(fs::read_link(&localtime).unwrap(), Path::new("/usr/share/zoneinfo/Europe/Berlin"));
        assert_eq!(run(root.path(), "{}").unwrap().removed, ["etc/localtime"]);
    }

    #[test]
    fn the_keyboard_has_the_keymap_of_its_layout_where_the_image_has_one_and_is_us_elsewhere() {
        let root = image();
        let file = root.path().join("etc/vconsole.conf");
        let british = "os: {keyboard: gb}";
        let warning = "the keyboard layout is us: this system has no keymap for the keyboard layout gb; \
                       `localectl list-keymaps` prints what it has";
        assert_eq!(run(root.path(), british).unwrap().warnings, [warning]);
        assert!(!file.exists());
        testing::machine::put_keymaps(root.path(), &["i386/qwerty/uk.kmap.gz"]);
        assert!(run(root.path(), british).unwrap().warnings.is_empty());
        assert_eq!(fs::read_to_string(&file).unwrap(), format!("{NOTE}KEYMAP=uk\n"));
        // What the document writes itself has precedence, and without the key the kernel's own layout is back.
        let own = "os: {keyboard: gb, write_files: [{path: /etc/vconsole.conf, content: KEYMAP=own}]}";
        run(root.path(), own).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "KEYMAP=own");
        assert_eq!(run(root.path(), "{}").unwrap().removed, ["etc/vconsole.conf"]);
    }

    #[test]
    fn a_directory_that_a_user_puts_in_the_place_of_a_file_does_not_stop_the_apply() {
        let root = image();
        let text = "os: {write_files: [{path: /home/rancher/note, content: a}]}";
        run(root.path(), text).unwrap();
        let note = root.path().join("home/rancher/note");
        fs::remove_file(&note).unwrap();
        fs::create_dir(&note).unwrap();
        let outcome = run(root.path(), text).unwrap();
        let way = "/home/rancher/note is a directory: move it away, or choose another path";
        assert_eq!(outcome.warnings, [format!("/home/rancher/note is not written: {way}")]);
        let outcome = run(root.path(), "{}").unwrap();
        assert_eq!(outcome.warnings, [format!("/home/rancher/note is not removed: {way}")]);
        fs::remove_dir(&note).unwrap();
        fs::write(&note, "a").unwrap();
        assert_eq!(run(root.path(), "{}").unwrap().removed, ["home/rancher/note"], "it is tried again");
    }

    fn document() -> impl Strategy<Value = String> {
        let maybe = proptest::option::of;
        let cluster = proptest::sample::select(vec![
            "  mode: install\n",
            "  mode: create\n  vip: 192.0.2.10\nsystem_settings: {ui-index: a}\ntoken: a\n",
            "  mode: create\nkubernetes: {distribution: k3s, manifests: [{name: a, content: '{apiVersion: v1, kind: A, metadata: {}}'}]}\n",
            "  mode: join\n  role: management\nserver_url: https://192.0.2.10\ntoken: b\n",
            "  mode: join\n  role: worker\nserver_url: https://192.0.2.10\nkubernetes: {distribution: k3s}\n",
        ]);
        (
            maybe("[a-z]{1,8}"),
            maybe("[a-z]{1,8}"),
            maybe("[0-9]"),
            maybe("[a-z]{1,5}"),
            any::<bool>(),
            cluster,
        )
            .prop_map(|(hostname, module, setting, server, mac, cluster)| {
                let mut text = "os:\n".to_owned();
                text.extend(hostname.map(|name| format!("  hostname: {name:?}\n")));
                text.extend(module.map(|name| format!("  modules: [{name:?}]\n")));
                text.extend(setting.map(|value| format!("  sysctls: {{kernel.panic: {value}}}\n")));
                text.extend(server.map(|name| format!("  ntp_servers: [{name:?}]\n")));
                let card = if mac { "hw_addr: '52:54:00:12:34:56'" } else { "name: ens3" };
                text + &format!("install:\n  management_interface: {{interfaces: [{{{card}}}]}}\n{cluster}")
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn a_second_apply_changes_nothing_and_another_document_leaves_no_trace(
            first in document(),
            second in document(),
        ) {
            let (used, fresh) = (image(), image());
            run(used.path(), &first).unwrap();
            let once = snapshot(used.path());
            prop_assert_eq!(run(used.path(), &first).unwrap(), ApplyOutcome::default());
            prop_assert_eq!(&snapshot(used.path()), &once);
            run(used.path(), &second).unwrap();
            run(fresh.path(), &second).unwrap();
            prop_assert_eq!(snapshot(used.path()), snapshot(fresh.path()));
        }
    }
}

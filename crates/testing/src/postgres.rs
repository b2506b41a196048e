//! PostgreSQL servers of Debian's package, each in a directory of its own.

use std::fs::{self, File, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::unistd::{Uid, User, chown};

/// The administrator of the servers, for whom a local socket needs no password.
pub const USER: &str = "serve";
/// What a connection over TCP needs.
pub const PASSWORD: &str = "a-password-of-the-database";
/// How long a server may take to start.
const START_LIMIT: Duration = Duration::from_secs(60);

/// Runs the server until its standard input ends, which is when the test does, however it ends. Then the server is stopped at
/// once, as by a power cut, and its directory removed, unless it is to be started again.
const RUN: &str = r#"directory=$1; shift
"$@" </dev/null >>"$directory/log" 2>&1 &
server=$!
cat >/dev/null
kill -QUIT "$server"
wait "$server"
[ -e "$directory/again" ] && exit
# Processes of the server can outlive it for a moment and still write.
for _ in 1 2 3 4 5; do rm -rf "$directory" 2>/dev/null && exit; sleep 1; done
"#;

/// A server that ends when this is dropped.
#[derive(Debug)]
pub struct PostgresServer {
    programs: PathBuf,
    directory: PathBuf,
    port: u16,
    settings: Vec<String>,
    running: Option<Child>,
    databases: AtomicUsize,
}

impl PostgresServer {
    /// A server whose tests lose nothing by a power cut of this host.
    #[must_use]
    pub fn start() -> Self {
        Self::with(&[], &[])
    }

    /// [`PostgresServer::start`] with settings and files of the data directory, such as those of TLS.
    #[must_use]
    pub fn with(settings: &[&str], files: &[(&str, &str)]) -> Self {
        let programs = programs();
        let directory = tempfile::Builder::new().prefix("postgres-").tempdir().unwrap().keep();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let fixed = ["fsync=off", "listen_addresses=127.0.0.1", "max_connections=100"];
        let mut settings: Vec<String> = fixed.iter().chain(settings).map(|&text| text.to_owned()).collect();
        settings.push(format!("unix_socket_directories={}", directory.display()));
        let mut server =
            Self { programs, directory, port, settings, running: None, databases: AtomicUsize::new(0) };
        fs::write(server.directory.join("password"), PASSWORD).unwrap();
        server.give(&[".", "password"]);
        let mut initdb = server.command("initdb");
        initdb.args(["--no-sync", "--encoding=UTF8", "--locale=C", "--auth-local=trust"]);
        initdb.args(["--auth-host=scram-sha-256", "--username", USER, "--pwfile"]);
        initdb.arg(server.directory.join("password")).arg("--pgdata").arg(server.data());
        let made = initdb.output().unwrap();
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        for (name, text) in files {
            fs::write(server.data().join(name), text).unwrap();
            fs::set_permissions(server.data().join(name), Permissions::from_mode(0o600)).unwrap();
            server.give(&[&format!("data/{name}")]);
        }
        server.start_again();
        server
    }

    /// Starts the server that was stopped.
    pub fn start_again(&mut self) {
        let _ = fs::remove_file(self.directory.join("again"));
        let mut run = self.as_user("sh");
        run.args(["-c", RUN, "sh"]).arg(&self.directory).arg(self.programs.join("postgres"));
        run.arg("-D").arg(self.data()).args(["-p", &self.port.to_string()]);
        for setting in &self.settings {
            run.args(["-c", setting]);
        }
        self.running = Some(run.stdin(Stdio::piped()).process_group(0).spawn().unwrap());
        let since = Instant::now();
        while !self.psql("postgres", "SELECT 1").0 {
            let log = || fs::read_to_string(self.directory.join("log")).unwrap_or_default();
            assert!(since.elapsed() < START_LIMIT, "PostgreSQL does not start: {}", log());
            sleep(Duration::from_millis(20));
        }
    }

    /// Stops the server without any of its own preparation, as by a power cut.
    pub fn stop(&mut self) {
        File::create(self.directory.join("again")).unwrap();
        self.end();
    }

    /// Makes an empty database. Returns its URL, for a connection over the local socket.
    #[must_use]
    pub fn database(&self) -> String {
        let name = format!("fleet{}", self.databases.fetch_add(1, Ordering::Relaxed));
        // The template that nobody connects to can be copied at any time.
        let made = self.psql("postgres", &format!("CREATE DATABASE {name} TEMPLATE template0"));
        assert!(made.0, "{}", made.1);
        self.url(&name)
    }

    /// The URL of a database over the local socket.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres:///{database}?host={}&port={}&user={USER}", self.directory.display(), self.port)
    }

    /// The URL of a database over TCP; `options` end it.
    #[must_use]
    pub fn network_url(&self, database: &str, options: &str) -> String {
        format!("postgres://{USER}@localhost:{}/{database}?{options}", self.port)
    }

    /// Runs SQL in a database of a URL that [`PostgresServer::database`] returned. Returns its output.
    pub fn run(&self, url: &str, sql: &str) -> String {
        let name = url.trim_start_matches("postgres:///").split('?').next().unwrap_or_default();
        let (succeeded, output) = self.psql(name, sql);
        assert!(succeeded, "{sql}: {output}");
        output
    }

    fn psql(&self, database: &str, sql: &str) -> (bool, String) {
        let mut psql = self.command("psql");
        psql.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--username", USER, "--host"]);
        psql.arg(&self.directory).args(["--port", &self.port.to_string(), "--command", sql, database]);
        let output = psql.stdin(Stdio::null()).output().unwrap();
        let text = if output.status.success() { output.stdout } else { output.stderr };
        (output.status.success(), String::from_utf8_lossy(&text).trim().to_owned())
    }

    fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    fn command(&self, program: &str) -> Command {
        let program = self.programs.join(program);
        self.as_user(program.to_str().unwrap())
    }

    /// PostgreSQL refuses to be run by root.
    fn as_user(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        if let Some(user) = other_user() {
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        command.current_dir(&self.directory);
        command
    }

    /// Gives files to the user who runs the server.
    fn give(&self, names: &[&str]) {
        for name in names {
            if let Some(user) = other_user() {
                chown(&self.directory.join(name), Some(user.uid), Some(user.gid)).unwrap();
            }
        }
    }

    fn end(&mut self) {
        if let Some(mut running) = self.running.take() {
            drop(running.stdin.take());
            running.wait().unwrap();
        }
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.end();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// The user who runs servers if root runs the tests.
fn other_user() -> Option<User> {
    if !Uid::effective().is_root() {
        return None;
    }
    ["postgres", "nobody"].into_iter().find_map(|name| User::from_name(name).ok().flatten())
}

/// The directory of the newest version. Debian has it outside of PATH.
fn programs() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let number = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions.map(|entry| entry.path()).max_by_key(|path| number(path));
    let found =
        newest.map(|version| version.join("bin")).filter(|programs| programs.join("initdb").is_file());
    found.expect("PostgreSQL is missing: install the package postgresql; `make setup` brings what tests need")
}

//! `iso-builder tokens`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Result;
use base::failure::{Class, Classify, Failure};
use base::files::write_atomically;
use base::program::Context;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use netboot::machines::access_token::{AccessToken, TokenName, TokenRole};
use netboot::machines::audit::Actor;
use netboot::machines::registry::MachineRegistry;
use netboot::machines::store::location::StateLocation;
use netboot::moment::Moment;
use nix::unistd::{Uid, User, gethostname};
use serde::Serialize;
use serde_json::json;

use super::serve::default_state;

/// Make, show and revoke tokens for the fleet page and the API of `serve`, while servers run.
///
/// A token has a name, under which the audit log records what its holder does, a role and an expiry. Only its SHA-256 is stored.
/// Every server of the state accepts it at once, and refuses it as soon as it is revoked.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct TokensCommand {
    #[command(subcommand)]
    command: TokensSubcommand,
}

#[derive(Debug, clap::Subcommand)]
enum TokensSubcommand {
    New(NewArguments),
    Show(ShowArguments),
    Revoke(RevokeArguments),
}

/// The state of the servers.
#[derive(Debug, clap::Args)]
struct StateArguments {
    /// The state of the servers, as `serve --state` has it.
    #[arg(long, value_name = "DIR|sqlite:FILE|postgres://...", default_value_os_t = default_state())]
    state: PathBuf,
}

/// Make a token, and print it.
#[derive(Debug, clap::Args)]
struct NewArguments {
    /// The name of its holder in the audit log: a person, or a program such as prometheus.
    name: TokenName,
    /// What it allows: `read`, to see the fleet, its audit log and the metrics; `operate`, to allow, deny, redeploy, forget
    /// and dismiss, too; `enroll`, to install with the fallback (default.yaml), for machines that no configuration names.
    #[arg(long, value_parser = role)]
    role: TokenRole,
    /// With `enroll`, how many machines may install by it.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    uses: Option<u32>,
    /// When it expires: after a time such as 12h, 30d or 8w, at a date such as 2027-01-31 (UTC), or `never`.
    #[arg(long, value_name = "WHEN", default_value = "90d")]
    expires: Expiry,
    /// Write the token into a file that nobody else may read, and do not print it.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    state: StateArguments,
}

/// Show the names, roles and expiry of tokens.
#[derive(Debug, clap::Args)]
struct ShowArguments {
    #[command(flatten)]
    state: StateArguments,
}

/// Revoke tokens: no server accepts them from then on.
#[derive(Debug, clap::Args)]
struct RevokeArguments {
    /// Their names.
    #[arg(required = true, value_name = "NAME")]
    names: Vec<TokenName>,
    #[command(flatten)]
    state: StateArguments,
}

const EXAMPLES: &str = "Examples:
  iso-builder tokens new alice --role operate
  iso-builder tokens new prometheus --role read --expires never --output /etc/prometheus/nqrust.token
  iso-builder tokens new rack-7 --role enroll --uses 40 --expires 2d
  iso-builder tokens revoke alice --state postgres://serve@db.example.org/fleet";

fn role(text: &str) -> Result<TokenRole, String> {
    let names = TokenRole::ALL.map(TokenRole::name).join(", ");
    TokenRole::of_name(text).ok_or_else(|| format!("there are {names}"))
}

/// A token that lets machines install is one for so many of them.
fn check_uses(role: TokenRole, uses: Option<u32>) -> Result<()> {
    let (what, hint) = match (role, uses) {
        (TokenRole::Enroll, None) => {
            ("a token with the role enroll needs a number of machines", "Give --uses NUMBER.")
        }
        (TokenRole::Read | TokenRole::Operate, Some(_)) => {
            ("--uses has no effect with this role: it counts machines that install", "Remove --uses.")
        }
        _ => return Ok(()),
    };
    Err(Failure::new(Class::Invalid, what).hint(hint).into())
}

/// When a token ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expiry {
    Never,
    /// After so many seconds.
    After(u64),
    At(Moment),
}

impl FromStr for Expiry {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || {
            format!(
                "{text} is neither a time such as 12h, 30d or 8w, nor a date such as 2027-01-31, nor never"
            )
        };
        if text == "never" {
            return Ok(Self::Never);
        }
        if let Ok(date) = text.parse::<Date>() {
            let start = date.to_zoned(TimeZone::UTC).map_err(|_| invalid())?.timestamp();
            return u64::try_from(start.as_second())
                .map(|second| Self::At(Moment(second)))
                .map_err(|_| invalid());
        }
        let unit = text.chars().next_back().ok_or_else(invalid)?;
        let seconds: u64 = match unit {
            'h' => 3600,
            'd' => 24 * 3600,
            'w' => 7 * 24 * 3600,
            _ => return Err(invalid()),
        };
        let number: u64 = text[..text.len() - 1].parse().map_err(|_| invalid())?;
        number.checked_mul(seconds).filter(|seconds| *seconds > 0).map(Self::After).ok_or_else(invalid)
    }
}

impl Expiry {
    /// The moment of the end, which is later than `now`; none for a token without an end.
    fn moment(self, now: Moment) -> Result<Option<Moment>> {
        let end = match self {
            Self::Never => return Ok(None),
            Self::After(seconds) => now.plus(seconds),
            Self::At(end) => end,
        };
        // A date that no calendar has is a mistake, too.
        let second = i64::try_from(end.0).ok().filter(|second| Timestamp::from_second(*second).is_ok());
        if end <= now || second.is_none() {
            let what = format!("a token cannot expire at {end}");
            return Err(Failure::new(Class::Invalid, what)
                .hint("Give --expires a time such as 30d, a date in the future, or never.")
                .into());
        }
        Ok(Some(end))
    }
}

/// A token as it is shown, without what opens it.
#[derive(Debug, Serialize)]
struct ShownToken {
    name: TokenName,
    role: TokenRole,
    created: String,
    /// Null for a token without an end.
    expires: Option<String>,
    /// How many more machines it lets install; null for another role.
    uses: Option<u32>,
    /// True if its end is past.
    expired: bool,
}

impl ShownToken {
    fn of(token: AccessToken, now: Moment) -> Self {
        let expired = !token.is_valid(now);
        let AccessToken { name, role, created, expires, uses, .. } = token;
        Self {
            name,
            role,
            created: created.to_string(),
            expires: expires.map(|end| end.to_string()),
            uses,
            expired,
        }
    }
}

impl fmt::Display for ShownToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, role, created, expires, uses, expired } = self;
        write!(f, "{name}  {role}  made {created}, ")?;
        if let Some(uses) = uses {
            write!(f, "{uses} more machines, ")?;
        }
        match expires {
            None => write!(f, "never expires"),
            Some(end) if *expired => write!(f, "expired {end}"),
            Some(end) => write!(f, "expires {end}"),
        }
    }
}

impl StateArguments {
    fn open(&self, context: &Context) -> Result<MachineRegistry> {
        let state = StateLocation::parse(&self.state, None, &default_state())?;
        let progress = context.progress.clone();
        let notice = move |text: &str| progress.note("tokens", text);
        Ok(MachineRegistry::new(state.open_beside(Box::new(notice))?))
    }
}

impl TokensCommand {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        match self.command {
            TokensSubcommand::New(arguments) => arguments.run(context),
            TokensSubcommand::Show(arguments) => arguments.run(context),
            TokensSubcommand::Revoke(arguments) => arguments.run(context),
        }
    }
}

impl NewArguments {
    fn run(self, context: &Context) -> Result<()> {
        let now = Moment::now();
        let expires = self.expires.moment(now)?;
        check_uses(self.role, self.uses)?;
        let registry = self.state.open(context)?;
        let made = registry.make_token(self.name.clone(), self.role, expires, self.uses, &actor(), now)?;
        let Some(made) = made else {
            let hint =
                format!("Choose another name, or run `iso-builder tokens revoke {}` first.", self.name);
            return Err(Failure::new(Class::Invalid, format!("there is a token {} already", self.name))
                .hint(hint)
                .into());
        };
        let shown = ShownToken::of(made.token, now);
        let text = made.text.expose();
        let Some(file) = &self.output else {
            let document = json!({ "token": text, "name": shown.name, "role": shown.role, "expires": shown.expires, "uses": shown.uses });
            return context.show(&document, || text.to_owned());
        };
        let written = write_atomically(file, format!("{text}\n").as_bytes(), 0o600);
        if written.is_err() {
            // A token that nobody has is of no use.
            registry.revoke_token(&self.name, &actor(), now)?;
        }
        written.class(Class::DiskIo, || format!("writing the token {}", self.name))?;
        let document = json!({ "file": file, "name": shown.name, "role": shown.role, "expires": shown.expires, "uses": shown.uses });
        context.show(&document, || format!("{shown}; it is in {}", file.display()))
    }
}

impl ShowArguments {
    fn run(self, context: &Context) -> Result<()> {
        let now = Moment::now();
        let tokens = self.state.open(context)?.access_tokens()?;
        let shown: Vec<_> = tokens.into_iter().map(|token| ShownToken::of(token, now)).collect();
        context.show(&shown, || match shown.is_empty() {
            true => "there are no tokens".to_owned(),
            false => shown.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
        })
    }
}

impl RevokeArguments {
    fn run(self, context: &Context) -> Result<()> {
        let registry = self.state.open(context)?;
        let known = registry.access_tokens()?;
        // Nothing is revoked if one of the names is misspelled.
        if let Some(name) = self.names.iter().find(|name| !known.iter().any(|token| token.name == **name)) {
            let hint = "`iso-builder tokens show` lists the tokens of this state.";
            return Err(Failure::new(Class::Invalid, format!("there is no token {name}")).hint(hint).into());
        }
        let mut revoked = Vec::new();
        for name in &self.names {
            if registry.revoke_token(name, &actor(), Moment::now())?.is_some() {
                revoked.push(name.to_string());
            }
        }
        context.show(&json!({ "revoked": revoked }), || format!("revoked: {}", revoked.join(", ")))
    }
}

/// The user who runs this command.
fn actor() -> Actor {
    let id = Uid::current();
    let user = User::from_uid(id).ok().flatten().map_or_else(|| format!("user {id}"), |user| user.name);
    let host = gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_default();
    Actor::command(&user, &host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::render;

    const NOW: Moment = Moment(1_700_000_000);

    #[test]
    fn only_a_token_that_lets_machines_install_has_uses_and_it_has_to() {
        for (role, uses, good) in [
            (TokenRole::Enroll, Some(1), true),
            (TokenRole::Enroll, None, false),
            (TokenRole::Read, None, true),
            (TokenRole::Operate, Some(1), false),
        ] {
            assert_eq!(check_uses(role, uses).is_ok(), good, "{role} {uses:?}");
        }
    }

    #[test]
    fn an_end_is_a_time_a_date_or_never() {
        for (text, end) in [
            ("never", Some(None)),
            ("12h", Some(Some(NOW.plus(12 * 3600)))),
            ("30d", Some(Some(NOW.plus(30 * 24 * 3600)))),
            ("8w", Some(Some(NOW.plus(8 * 7 * 24 * 3600)))),
            ("2027-01-31", Some(Some(Moment(1_801_353_600)))),
            ("", None),
            ("d", None),
            ("0d", None),
            ("-1d", None),
            ("30", None),
            ("30é", None),
            ("2027-02-30", None),
            ("99999999999999999999d", None),
            ("9999999999999999d", None),
        ] {
            let read = text.parse::<Expiry>().ok();
            assert_eq!(read.and_then(|expiry| expiry.moment(NOW).ok()), end, "{text}");
        }
        let past = "2020-01-01".parse::<Expiry>().unwrap().moment(NOW).unwrap_err();
        assert!(render(&past).contains("a token cannot expire at 2020-01-01T00:00:00Z"), "{}", render(&past));
    }
}

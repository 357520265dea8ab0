//! `nearside cert`: an authority of one's own, and certificates for a service and the programs that
//! use it over a network.
//!
//! ```text
//! DIR/server/        credentials of the service, for `nearside serve --credentials`
//! DIR/server/access  what each program may do
//! DIR/clients/NAME/  credentials of a program
//! DIR/ca/            the authority's key, and what it has issued and revoked: nobody else's
//! ```

mod authority;
mod issued;

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use clap::Args;
use nix::unistd::{User, getegid, geteuid};
use serde::Serialize;

use crate::error::{self, Error, Result};
use crate::output::{self, quoted};
use authority::{Authority, For};
use issued::Issued;

/// Names of a service on this machine, besides the machine's own.
const HERE: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
/// Days that certificates are of use, where nobody says another number.
const DAYS: &str = "365";

/// Arguments of `cert`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside cert ~/near                               for a first try on this machine
  nearside cert ~/near --server near.example --client ann --client backup
  nearside cert ~/near --client ben                  one more, of the same authority
  nearside cert ~/near --server near.example         the service's anew, before a year is over
  nearside cert ~/near --revoke ben                  and it is let in no more

A service takes DIR/server, and what each program may do there is in DIR/server/access. A program
takes DIR/clients/NAME: in NEARSIDE_CREDENTIALS, or copied to ~/.config/nearside/credentials. Keep
DIR/ca where only you reach it: who has its key can be anybody.")]
pub struct CertArgs {
    /// Where they go; made if it is missing.
    pub dir: PathBuf,
    /// A name or an address of the service, as programs say it after near://; once for each
    /// [default: localhost, 127.0.0.1, ::1 and this machine's name].
    #[arg(long, value_name = "NAME", value_parser = server_name)]
    pub server: Vec<String>,
    /// A program's or a machine's name, which the access file has; once for each [default: your
    /// user's name].
    #[arg(long, value_name = "NAME", value_parser = client_name)]
    pub client: Vec<String>,
    /// Revoke all certificates that a name has had; once for each.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["server", "client"])]
    #[arg(value_parser = client_name)]
    pub revoke: Vec<String>,
    /// Days for which new certificates are of use; the authority's are ten years.
    #[arg(long, value_name = "N", default_value = DAYS)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=3650))]
    pub days: u16,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

fn client_name(text: &str) -> std::result::Result<String, String> {
    let is_label = |label: &str| {
        let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=63).contains(&label.len())
            && label.bytes().all(is_inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    match text.len() <= 253 && text.split('.').all(is_label) {
        true => Ok(text.to_ascii_lowercase()),
        false => Err("say letters, digits and hyphens, with dots between".to_owned()),
    }
}

fn server_name(text: &str) -> std::result::Result<String, String> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    match bare.parse::<std::net::IpAddr>() {
        Ok(address) => Ok(address.to_string()),
        Err(_) => client_name(text),
    }
}

/// What was made.
#[derive(Debug, Default, Serialize)]
struct Made {
    dir: PathBuf,
    authority: bool,
    server: Vec<String>,
    clients: Vec<String>,
    revoked: Vec<String>,
    /// Clients of which the access file says nothing.
    without_access: Vec<String>,
    /// Whom the others act as, where the access file was made.
    acts_as: Option<String>,
}

/// Makes certificates, or revokes some.
pub fn run(args: &CertArgs) -> Result<()> {
    let dir = std::path::absolute(&args.dir).map_err(error::io(&args.dir))?;
    let made = match args.revoke.is_empty() {
        true => make(args, &dir)?,
        false => revoke(&args.revoke, &dir)?,
    };
    if args.json { output::json(&made) } else { output::text(&text(&made)) }
}

fn make(args: &CertArgs, dir: &Path) -> Result<Made> {
    let ca = dir.join("ca");
    make_dir(dir, 0o755)?;
    make_dir(&ca, 0o700)?;
    let (authority, is_new) = Authority::open(&ca)?;
    let mut issued = Issued::open(&ca)?;
    let mut made = Made { dir: dir.to_path_buf(), authority: is_new, ..Made::default() };
    let (server, clients) = (dir.join("server"), dir.join("clients"));
    if !args.server.is_empty() || !server.join("cert.pem").exists() {
        make_dir(&server, 0o755)?;
        made.server = if args.server.is_empty() { names_here() } else { args.server.clone() };
        let what = (For::Service, &made.server[..]);
        authority.certify(what, args.days, &server, &mut issued)?;
    }
    let is_first = !clients.exists();
    made.clients = args.client.clone();
    if is_first && made.clients.is_empty() {
        made.clients.push(own_name());
    }
    make_dir(&clients, 0o755)?;
    for name in &made.clients {
        let own = clients.join(name);
        make_dir(&own, 0o700)?;
        let what = (For::Program, std::slice::from_ref(name));
        authority.certify(what, args.days, &own, &mut issued)?;
    }
    if made.server.is_empty() && made.clients.is_empty() {
        let text = "there are certificates already; say --client NAME for one more, --server NAME \
                    for the service's anew, or --revoke NAME";
        return Err(Error::Server(format!("{}: {text}", dir.display())));
    }
    match give_access(&server.join("access"), &made.clients)? {
        Access::Made(user) => made.acts_as = Some(user),
        Access::Lacks(clients) => made.without_access = clients,
    }
    Ok(made)
}

/// What the access file says of clients.
enum Access {
    /// It was made: all of them are this user, `UID:GID`.
    Made(String),
    /// It was there, and says nothing of these.
    Lacks(Vec<String>),
}

/// A first access file, in which these are the present user.
fn give_access(path: &Path, clients: &[String]) -> Result<Access> {
    match std::fs::read_to_string(path) {
        Ok(text) => {
            let is_there = |name: &&String| {
                let first = |line: &str| line.split_whitespace().next().map(str::to_owned);
                text.lines().filter_map(first).any(|first| first.eq_ignore_ascii_case(name))
            };
            let lacks = clients.iter().filter(|name| !is_there(name)).cloned();
            return Ok(Access::Lacks(lacks.collect()));
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error::io(path)(error)),
    }
    let user = format!("{}:{}", geteuid(), getegid());
    let mut text = "# What each program may do that comes over the network, a line for each:\n\
                    # NAME UID:GID[,GROUP...] [path=/SUBTREE] [read-only] [squash=all|root|none]\n"
        .to_owned();
    for name in clients {
        text += &format!("{name} {user}\n");
    }
    authority::put(path, &text, 0o644)?;
    Ok(Access::Made(user))
}

fn revoke(names: &[String], dir: &Path) -> Result<Made> {
    let ca = dir.join("ca");
    let authority = Authority::known(&ca)?;
    let mut issued = Issued::open(&ca)?;
    for name in names {
        if !issued.revoke(name)? {
            let text = format!("no certificate of {name} was made here");
            return Err(Error::Server(format!("{}: {text}", dir.display())));
        }
    }
    authority.list_revoked(&issued, &dir.join("server/revoked.pem"))?;
    Ok(Made { dir: dir.to_path_buf(), revoked: names.to_vec(), ..Made::default() })
}

/// What this machine is called by those who use it.
fn names_here() -> Vec<String> {
    let mut names: Vec<String> = HERE.map(str::to_owned).into();
    let machine = rustix::system::uname();
    let machine = machine.nodename().to_str().ok().and_then(|name| client_name(name).ok());
    names.extend(machine.filter(|name| name != "localhost"));
    names
}

/// The present user's name, as a name of machines may be.
fn own_name() -> String {
    let user = User::from_uid(geteuid()).ok().flatten().map(|user| user.name);
    label(&user.unwrap_or_default())
}

fn label(name: &str) -> String {
    let clean = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let label: String = name.chars().map(clean).take(63).collect();
    let label = label.trim_matches('-');
    if label.is_empty() { "user".to_owned() } else { label.to_owned() }
}

fn make_dir(path: &Path, mode: u32) -> Result<()> {
    DirBuilder::new().recursive(true).mode(mode).create(path).map_err(error::io(path))
}

/// Adds a line to a file of the authority's own.
fn append(path: &Path, line: &str) -> Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| {
        file.write_all(line.as_bytes())?;
        file.sync_all()
    });
    written.map_err(error::io(path))
}

fn text(made: &Made) -> String {
    let dir = quoted(&made.dir);
    let mut text = String::new();
    if made.authority {
        text += &format!("{dir}/ca: an authority; who has its key can be anybody\n");
    }
    if !made.server.is_empty() {
        text += &format!("{dir}/server: the service, as {}\n", made.server.join(", "));
    }
    for name in &made.clients {
        text += &format!("{dir}/clients/{name}: a program, as {name}\n");
    }
    if let Some(user) = &made.acts_as {
        let all = if user.starts_with("0:") { ", root, who may do everything" } else { "" };
        text += &format!("{dir}/server/access: what a program does, it does as {user}{all}\n");
    }
    for name in &made.revoked {
        text += &format!("{name}: revoked, by {dir}/server/revoked.pem\n");
    }
    for name in &made.without_access {
        text += &format!("{name}: add a line to {dir}/server/access, like: {name} 1000:1000\n");
    }
    if let (false, Some(name)) = (made.server.is_empty(), made.clients.first()) {
        text += &format!(
            "\nNow serve a pool, and let programs of {name} use it at near://{}:\n  \
             nearside serve POOL --listen 0.0.0.0 --credentials {dir}/server\n  \
             NEARSIDE_CREDENTIALS={dir}/clients/{name} nearside mount near://{} DIR\n",
            made.server[0], made.server[0]
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whom_programs_act_as_is_said() {
        let said = |user: &str| {
            text(&Made { dir: "/c".into(), acts_as: Some(user.to_owned()), ..Made::default() })
        };
        let access = "/c/server/access: what a program does, it does as";
        assert_eq!(said("1000:1000"), format!("{access} 1000:1000\n"));
        assert_eq!(said("0:0"), format!("{access} 0:0, root, who may do everything\n"));
    }

    #[test]
    fn names_are_those_that_certificates_may_have() {
        assert_eq!(client_name("Ann.Example"), Ok("ann.example".to_owned()));
        for wrong in ["", "-a", "a-", "a..b", "a_b", "é", "a b", "*.a", &"a".repeat(64)] {
            assert!(client_name(wrong).is_err(), "{wrong}");
        }
        assert_eq!(server_name("[::1]"), Ok("::1".to_owned()));
        assert_eq!(server_name("10.0.0.1"), Ok("10.0.0.1".to_owned()));
        assert_eq!(server_name("near"), Ok("near".to_owned()));
        for (user, name) in [("ann", "ann"), ("_Ann.B_", "ann-b"), ("__", "user"), ("", "user")] {
            assert_eq!(label(user), name);
            assert!(client_name(&label(user)).is_ok());
        }
    }

    #[test]
    fn a_shell_takes_paths_as_they_are() {
        assert_eq!(quoted(Path::new("/a/b-c.d")), "/a/b-c.d");
        assert_eq!(quoted(Path::new("/a b/it's")), r"'/a b/it'\''s'");
    }
}

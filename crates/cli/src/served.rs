//! What is served: a pool, through a mount, to processes that attach, or both.

use std::path::PathBuf;

use clap::Args;

use crate::listening::Listening;
use crate::{origin, size};
use nearside::files::Lever;

/// What a keeper keeps and a server serves.
#[derive(Clone, Debug)]
pub struct Served {
    /// The pool's directory; or what stands for it where another machine has the pool.
    pub pool: PathBuf,
    /// The address of the service that has it, where that is another machine's.
    pub origin: Option<PathBuf>,
    /// Where it is mounted, if it is.
    pub dir: Option<PathBuf>,
    /// Where processes attach, if they may.
    pub attaching: Option<Attaching>,
    /// How.
    pub serving: Serving,
}

impl Served {
    /// What `nearside mount` asks for.
    pub fn mounted(args: MountArgs) -> Served {
        let MountArgs { pool, dir, serving } = args;
        let (pool, origin) = match client::is_address(&pool) {
            // of a place that is not there nothing is found
            true => (origin::home(&dir, rustix::process::geteuid().as_raw()), Some(pool)),
            false => (pool, None),
        };
        Served { pool, origin, dir: Some(dir), attaching: None, serving }
    }

    /// What `nearside serve` asks for.
    pub fn attached(args: ServeArgs) -> Served {
        let ServeArgs { pool, mount, attaching, serving } = args;
        Served { pool, origin: None, dir: mount, attaching: Some(attaching), serving }
    }

    /// The socket where processes attach.
    pub fn socket(&self) -> Option<PathBuf> {
        let attaching = self.attaching.as_ref()?;
        let usual = || self.pool.join(nearside::ATTACH_SOCKET);
        Some(attaching.socket.clone().unwrap_or_else(usual))
    }
}

/// Arguments of `mount`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  nearside mount /data/pool /mnt/near
  nearside mount /data/pool /mnt/near --foreground    until Ctrl-C
  nearside mount /data/pool /mnt/near --read-only --memory 2G
  nearside mount /data/pool /mnt/near --http 127.0.0.1:9399    for browsers and Prometheus
  nearside mount near://host/projects /mnt/near    of a pool that another machine serves

The log goes to POOL/nearside.log, the process ids of the keeper and of its server to
POOL/nearside.pid. SIGTERM to either unmounts cleanly. NEARSIDE_LOG=debug tells of each call
that is refused, too, NEARSIDE_LOG=trace of every call. Over
POOL/nearside.sock the server answers the pool's owner and root: nearside stats, top, info, df and
check ask there. With --http it shows what the pool does to everybody who can reach the address,
without a password: at / a page with charts, at /metrics and /sample.json the numbers.")]
pub struct MountArgs {
    /// Directory of the pool; or near://HOST[:PORT][/PATH], one that another machine serves.
    #[arg(value_name = "POOL|ADDRESS")]
    pub pool: PathBuf,
    /// Directory to mount it on; must be empty.
    pub dir: PathBuf,
    /// How it is served.
    #[command(flatten)]
    pub serving: Serving,
}

/// Arguments of `serve`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  nearside serve /data/pool                          processes attach at /data/pool/attach.sock
  nearside serve /data/pool --mount /mnt/near        and other programs use the mount
  nearside serve /data/pool --foreground             until Ctrl-C
  nearside serve /data/pool --socket /run/near.sock --socket-mode 660
  nearside serve /data/pool --listen 0.0.0.0 --credentials /etc/nearside/server
                                                     and at near://HOST, by certificate
  nearside serve /data/pool --listen 127.0.0.1 --insecure
                                                     and at near+insecure://127.0.0.1
  nearside serve /data/pool --listen 10.0.0.1 --credentials /etc/nearside/server --fabric verbs
                                                     and by RDMA at near+fabric-verbs://10.0.0.1

Programs that use the library, with NEARSIDE_POOL or Pool::attach, share the pool through the
service, each with the rights of its user and groups. SIGTERM ends it cleanly: it checkpoints and
closes the pool. Logs and questions are as those of `nearside mount`.")]
pub struct ServeArgs {
    /// Directory of the pool.
    pub pool: PathBuf,
    /// Mount it on this directory, too; must be empty.
    #[arg(long, value_name = "DIR")]
    pub mount: Option<PathBuf>,
    /// Where processes attach.
    #[command(flatten)]
    pub attaching: Attaching,
    /// How it is served.
    #[command(flatten)]
    pub serving: Serving,
}

/// Where processes attach, and who may.
#[derive(Clone, Debug, Args)]
pub struct Attaching {
    /// The socket where processes attach [default: POOL/attach.sock].
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Permission bits of the socket, in octal: who may attach. What they may do there is what the
    /// files allow them.
    #[arg(long, value_name = "MODE", default_value = "666", value_parser = octal)]
    pub socket_mode: u32,
    /// End when no process has been attached for so many seconds: for a service that was started
    /// on demand.
    #[arg(long, value_name = "SECONDS")]
    pub until_idle: Option<u32>,
    /// Over a network.
    #[command(flatten)]
    pub listening: Listening,
}

fn octal(text: &str) -> Result<u32, String> {
    u32::from_str_radix(text, 8)
        .ok()
        .filter(|mode| *mode <= 0o777)
        .ok_or_else(|| "permission bits are up to three octal digits, like 660".to_owned())
}

/// How a pool is served, mounted or not.
#[derive(Clone, Debug, Args)]
pub struct Serving {
    /// Stay in the foreground and log to stderr.
    #[arg(long)]
    pub foreground: bool,
    /// Refuse every change.
    #[arg(long)]
    pub read_only: bool,
    /// Let other users in, each with the rights that files give them; root's mounts always do, for
    /// others it takes user_allow_other in /etc/fuse.conf.
    #[arg(long)]
    pub allow_other: bool,
    /// Threads that serve requests of a mount [default: two for each CPU].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: Option<u16>,
    /// Memory that caches may use [default: an eighth of the machine's].
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub memory: Option<u64>,
    /// Workers of each slice, who copy large pieces for callers on other nodes; 0: none [default:
    /// by the node's CPUs].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=256))]
    pub workers: Option<u16>,
    /// Move parts of files to slices near their readers, where calibration says that it pays: off,
    /// report (nearside why tells what would move) or on [default: on].
    #[arg(long, value_name = "LEVER")]
    pub move_data: Option<Lever>,
    /// Move the threads that serve to the nodes of what they read: off, report or on [default:
    /// off].
    #[arg(long, value_name = "LEVER")]
    pub move_threads: Option<Lever>,
    /// Write blocks back to the capacity tier when more than so many percent of a slice are in use
    /// [default: 30].
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=90))]
    pub write_back_at: Option<u8>,
    /// Memory of each node for blocks of the capacity tier [default: a quarter of --memory, shared
    /// by the nodes].
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub tier_cache: Option<u64>,
    /// Show there what the pool does: at / a page with charts for a browser, at /metrics the text
    /// format of Prometheus, at /sample.json the numbers; --metrics is the older name.
    #[arg(long, alias = "metrics", value_name = "ADDR:PORT")]
    pub http: Option<std::net::SocketAddr>,
    /// This is the keeper in the background, started by the command; it reports on stdout.
    #[arg(long, hide = true, conflicts_with = "foreground")]
    pub as_keeper: bool,
    /// This is the server, started by its keeper, to whom its stdin leads.
    #[arg(long, hide = true, conflicts_with_all = ["foreground", "as_keeper"])]
    pub as_server: bool,
}

/// Which of the processes that serve a pool this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The one that was asked to serve.
    Command,
    /// The keeper in the background.
    Keeper,
    /// The server.
    Server,
}

impl Serving {
    /// Which process these arguments are for.
    pub fn part(&self) -> Part {
        match (self.as_keeper, self.as_server) {
            (true, _) => Part::Keeper,
            (false, true) => Part::Server,
            (false, false) => Part::Command,
        }
    }
}

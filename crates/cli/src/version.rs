//! `nearside version` and `nearside --version`: the facts of this build.

use std::sync::LazyLock;

use clap::Args;
use serde::Serialize;

use crate::error::Result;
use crate::output;

/// Arguments of `version`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside version
  nearside version --json

nearside --version prints the same. After a commit, -dirty says that the sources had changes which
were not committed. A program that was built outside git has the commit \"unknown\".")]
pub struct VersionArgs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// The facts of a build: its sources, features and formats.
#[derive(Serialize)]
struct BuildInfo {
    version: &'static str,
    /// The first digits of the commit; none in a build outside git.
    commit: Option<&'static str>,
    /// Whether the sources had changes that were not committed.
    dirty: bool,
    /// The optional features that are compiled in.
    features: Vec<&'static str>,
    /// The format of new pools. The program reads all formats up to this one.
    format_version: u32,
    /// The protocol between a service and its clients.
    protocol_version: u32,
}

/// The commit, as build.rs found it.
const COMMIT: Option<&str> = option_env!("NEARSIDE_COMMIT");
const DIRTY: &str = "-dirty";

const FEATURES: [(&str, bool); 2] =
    [("object-store", cfg!(feature = "object-store")), ("fabric", cfg!(feature = "fabric"))];

impl BuildInfo {
    fn new() -> BuildInfo {
        let features = FEATURES.into_iter().filter(|&(_, is_compiled)| is_compiled);
        BuildInfo {
            version: env!("CARGO_PKG_VERSION"),
            commit: COMMIT.map(|commit| commit.trim_end_matches(DIRTY)),
            dirty: COMMIT.is_some_and(|commit| commit.ends_with(DIRTY)),
            features: features.map(|(name, _)| name).collect(),
            format_version: pool::FORMAT_VERSION,
            protocol_version: wire::VERSION,
        }
    }
}

/// The version, and a line for each other fact.
pub fn text() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let build = BuildInfo::new();
        let features = match build.features.as_slice() {
            [] => "none".to_owned(),
            features => features.join(", "),
        };
        format!(
            "{}\ncommit      {}\nfeatures    {features}\nformat      {}\nprotocol    {}",
            build.version,
            COMMIT.unwrap_or("unknown"),
            build.format_version,
            build.protocol_version
        )
    });
    &TEXT
}

/// Shows the version.
pub fn run(args: &VersionArgs) -> Result<()> {
    match args.json {
        true => output::json(&BuildInfo::new()),
        false => output::text(&format!("nearside {}\n", text())),
    }
}

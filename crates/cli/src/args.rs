//! What the command line may say.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use nearside::{SLICES_MAX, SliceSpec};

use crate::{
    bench, calibrate, cat, cert, check, cp, df, ls, manual, mkdir, mv, region, resilver, rm, scrub,
    served, set, simulate, size, stat, stats, stop, tier, top, topology, trace, tree, version,
    whereis, why,
};

/// Files on persistent memory: a pool of slices, one for each NUMA node, mounted for every program.
#[derive(Debug, Parser)]
#[command(name = "nearside", version, long_version = version::text(), after_help = EXAMPLES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  nearside format /data/pool --slices 2 --size 1G   make a pool of two files
  nearside mount /data/pool /mnt/near               mount it; the server stays in the background
  nearside info /data/pool                          what it is and how full
  nearside umount /mnt/near                         checkpoint, close, unmount
  nearside check /data/pool                         verify everything that is stored
  nearside cp -r notes /data/pool:/                 copy into a pool, mounted or not
  nearside ls -l /data/pool:/notes                  and look at it
  nearside stats /mnt/near                          what a mounted pool does

POOL is a directory that holds the slices, POOL:/path a file or directory in it. The verbs on
POOL:/path work without a mount; a pool that is mounted they use through its mount, one that a
service has through that.
Sizes take K, M, G and T (powers of 1024).
Exit codes: 0 done, 1 failed, 2 wrong usage.";

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a pool.
    Format(FormatArgs),
    /// Mount a pool on a directory.
    Mount(served::MountArgs),
    /// Own a pool for all processes that attach to it.
    Serve(served::ServeArgs),
    /// Make certificates for a service on a network and the programs that use it.
    Cert(cert::CertArgs),
    /// End the service of a pool; returns when everything is checkpointed and the server has gone.
    Stop(stop::StopArgs),
    /// Unmount; returns when everything is checkpointed and the server has gone.
    Umount(UmountArgs),
    /// Replace the server of a mount by another version while its files are in use.
    Upgrade(UpgradeArgs),
    /// Show what a pool is and how full.
    Info(InfoArgs),
    /// Verify everything that a pool stores; exits 0 if clean, 1 if damaged, 2 if it cannot look.
    Check(check::CheckArgs),
    /// Verify checksums while the pool is in use, and repair what has a copy.
    Scrub(scrub::ScrubArgs),
    /// Give a mirrored pool its second copy of everything back.
    Resilver(resilver::ResilverArgs),
    /// Look after the capacity tier of a pool: the devices below its slices.
    Tier(tier::TierArgs),
    /// Look after regions: files that programs map as transactional memory.
    Region(region::RegionArgs),
    /// Show how much space a pool has, slice by slice.
    Df(df::DfArgs),
    /// List a directory of a pool.
    Ls(ls::LsArgs),
    /// Show all that is in a directory of a pool.
    Tree(tree::TreeArgs),
    /// Show all that a pool says of one file.
    Stat(stat::StatArgs),
    /// Print files of a pool.
    Cat(cat::CatArgs),
    /// Show on which slices a file lies, and how much of it is near.
    Where(whereis::WhereArgs),
    /// Show why a file lies where it does: who loses by it, and what was decided.
    Why(why::WhyArgs),
    /// Set where new blocks of a file go, and of what is made in a directory.
    Set(set::SetArgs),
    /// Copy into a pool, out of it, or within it.
    Cp(cp::CpArgs),
    /// Remove files and directories of a pool.
    Rm(rm::RmArgs),
    /// Rename within a pool.
    Mv(mv::MvArgs),
    /// Make directories in a pool.
    Mkdir(mkdir::MkdirArgs),
    /// Show what a mounted pool does: calls, logs, checkpoints, caches.
    Stats(stats::StatsArgs),
    /// Show the same on a terminal, again and again.
    Top(top::TopArgs),
    /// Show the machine's nodes, CPUs, distances and persistent memory.
    Topology(topology::TopologyArgs),
    /// Print the completion of a shell.
    Completions(manual::CompletionsArgs),
    /// Print the manual, or write all its pages.
    Man(manual::ManArgs),
    /// Measure what the memory of a pool's nodes can do, and keep it.
    Calibrate(calibrate::CalibrateArgs),
    /// Record the calls on a pool in use, for the simulator.
    Trace(trace::TraceArgs),
    /// Show what threads would get of a machine that is not here.
    Simulate(simulate::SimulateArgs),
    /// Measure what the engine costs, beside the floor of the same run.
    Bench(bench::BenchArgs),
    /// Show the version: commit, features, format of pools, protocol between processes.
    Version(version::VersionArgs),
}

/// Durability that has to be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Durability {
    /// Survive a killed process, not a power cut: as fast as the memory, on any file.
    Process,
}

/// Arguments of `format`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside format /data/pool --slices 2 --size 1G
  nearside format /tmp/pool --size 256M --durability process
  nearside format /data/pool --slices 2 --size 1G --dry-run
  nearside format /data/pool --slices 2 --size 1G --data-copies 2
  nearside format /data/pool --slice /dev/dax0.0 --slice /dev/dax1.0
  nearside format /data/pool --slice /dev/dax0.0 --capacity /dev/nvme0n1
  nearside format /data/pool --slice /mnt/pmem0/near:64G --slice /mnt/pmem1/near:64G")]
pub struct FormatArgs {
    /// Directory of the pool; made if it is missing.
    pub pool: PathBuf,
    /// Number of slices [default: as many as --slice says, at least 1]; those without --slice are
    /// files in the pool's directory.
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=SLICES_MAX as i64))]
    pub slices: Option<u32>,
    /// Size of each slice that does not say its own, like 1G.
    #[arg(long, value_parser = size::parse)]
    pub size: Option<u64>,
    /// A slice elsewhere: a device, or a file with its size. Once for each.
    #[arg(long = "slice", value_name = "PATH[:SIZE]", value_parser = size::parse_slice)]
    pub slice: Vec<SliceSpec>,
    /// A device or file of the capacity tier, where blocks go that nobody uses: a file with its
    /// size, a block device, or in a build that knows them an object store with a size
    /// (s3://BUCKET/PREFIX:SIZE, file:///DIR:SIZE). Once for each.
    #[arg(long, value_name = "PATH|URL[:SIZE]", value_parser = size::parse_slice)]
    pub capacity: Vec<SliceSpec>,
    /// Pretend that the slices lie on this many NUMA nodes.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub virtual_nodes: Option<u32>,
    /// Durability to settle for, instead of the best that the medium has.
    #[arg(long)]
    pub durability: Option<Durability>,
    /// Size of each slice's log [default: by the slice's size].
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub log: Option<u64>,
    /// Bytes of a line of the logs: every write to a log fills whole lines. 256 for Optane DIMMs,
    /// also where a virtual machine hides them [default: what each slice's memory writes at once].
    #[arg(long, value_name = "64|256", value_parser = log_line)]
    pub log_line: Option<u32>,
    /// Bytes of a stripe: how much of a large file lies on one slice before the next one comes; a
    /// power of two [default: 256K].
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub stripe: Option<u64>,
    /// Keep so many copies of everything, on different slices. With 2 the pool works without any
    /// one of its files, and half of each holds the mirror of another slice.
    #[arg(long, value_name = "1|2", default_value = "1")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=2))]
    pub data_copies: u32,
    /// Take files and devices also if something is in them, data or another pool, which is lost
    /// then; never devices that are mounted. It replaces no pool in the same directory, and takes
    /// no object store that holds one: remove the objects there.
    #[arg(long)]
    pub force: bool,
    /// Make nothing; say what would be made, and whether there is room for it.
    #[arg(long)]
    pub dry_run: bool,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

fn log_line(text: &str) -> Result<u32, String> {
    match text {
        "64" => Ok(64),
        "256" => Ok(256),
        _ => Err("a line of a log has 64 or 256 bytes".to_owned()),
    }
}

/// Arguments of `umount`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside umount /mnt/near

The mount of a server that died is cleared, too.")]
pub struct UmountArgs {
    /// Directory that the pool is mounted on, or the pool's own.
    #[arg(value_name = "DIR|POOL")]
    pub dir: PathBuf,
}

/// Arguments of `upgrade`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside upgrade /mnt/near                              to the version of this command
  nearside upgrade /mnt/near --program ./target/release/nearside

Open files, locks and calls under way go on: they wait until the new server serves. A program that
does not run as a server replaces nothing; where the new server cannot serve, the keeper starts the
version with which it was mounted.")]
pub struct UpgradeArgs {
    /// Directory that the pool is mounted on, or the pool's own.
    #[arg(value_name = "DIR|POOL")]
    pub dir: PathBuf,
    /// The program that is to serve [default: this one].
    #[arg(long, value_name = "PATH")]
    pub program: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `info`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside info /data/pool
  nearside info /data/pool --json

The server of a mounted pool is asked: it tells the pool's owner and root.")]
pub struct InfoArgs {
    /// A pool: its directory, or the one it is mounted on.
    #[arg(value_name = "POOL|DIR")]
    pub pool: PathBuf,
    /// Print JSON; all sizes are bytes.
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_make_sense_to_clap() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_contract_parses() {
        let lines = [
            "nearside format POOL --slices 2 --size 1G --slice /a:5M --slice /b --virtual-nodes 2 \
             --durability process --log 16M --log-line 256 --data-copies 2",
            "nearside mount POOL DIR --foreground --read-only --threads 3 --memory 1G",
            "nearside mount POOL DIR --http 127.0.0.1:9399 --allow-other",
            "nearside mount POOL DIR --metrics 127.0.0.1:9399",
            "nearside serve POOL --http [::1]:9399",
            "nearside serve POOL --mount DIR --socket /run/s --socket-mode 600 --memory 1G",
            "nearside serve POOL --listen ::1 --listen-as 0:0 --insecure --trust-network",
            "nearside serve POOL --listen ::1 --credentials DIR --access FILE",
            "nearside cert DIR --server A --server ::1 --client B --days 30 --json",
            "nearside cert DIR --revoke A --revoke B",
            "nearside stop POOL",
            "nearside top POOL --every 5",
            "nearside topology --json",
            "nearside completions zsh",
            "nearside man --out DIR",
            "nearside stats DIR --every 2 --count 3 --json",
            "nearside umount DIR",
            "nearside upgrade DIR --program PATH --json",
            "nearside info POOL --json",
            "nearside check POOL --json",
            "nearside bench --dir DIR --only overwrite_4k --json",
            "nearside bench deck --array 1G --rounds 3 --dir DIR --json",
            "nearside bench ycsb --plot FILE --scale 0.5 --disk DIR --quick",
            "nearside bench service --rounds 3 --idle 5 --dir DIR --json",
            "nearside bench sharing --processes 2 --scale 0.5 --rounds 3 --quick",
            "nearside bench remote --rounds 3 --idle 5 --disk DIR --json",
            "nearside calibrate POOL --seconds 5 --pictures DIR --dry-run --emulate M --json",
            "nearside simulate --machine M --system odinfs --threads 1,8 --bytes 4K --kind read",
            "nearside simulate --spread --on-nodes 2 --milliseconds 5 --seed 2 --pictures DIR --json",
            "nearside simulate --published --json",
            "nearside df POOL --json",
            "nearside tier status POOL --json",
            "nearside tier flush POOL --json",
            "nearside tier evict POOL --json",
            "nearside region create POOL /a --size 1G --mode 640 --reserve",
            "nearside region info POOL:/a --json",
            "nearside region dump POOL /a --offset 4K --length 16 --raw",
            "nearside format POOL --slice /a --capacity /b:5G --capacity /dev/c",
            "nearside resilver POOL --slice 1 --onto /dev/dax1.0 --json",
            "nearside ls -la POOL:/a --json",
            "nearside ls POOL",
            "nearside tree POOL --json",
            "nearside stat POOL:/a --json",
            "nearside cat POOL:/a OTHER:/b",
            "nearside cp -rp --sparse a POOL:/a",
            "nearside cp -a POOL:/a b",
            "nearside rm --dry-run --json POOL:/a",
            "nearside format POOL --size 1G --dry-run",
            "nearside rm -rf --dry-run POOL:/a POOL:/b",
            "nearside mv POOL:/a POOL:/b",
            "nearside mkdir -p POOL:/a",
            "nearside mount POOL DIR --move-data report --move-threads on",
            "nearside set POOL:/a layout=near move-data=off move-threads=report",
            "nearside trace DIR --seconds 1 --calls 7 --out FILE",
            "nearside simulate --workload ycsb-a --threads 1,2",
            "nearside version --json",
        ];
        for line in lines {
            Cli::try_parse_from(line.split_whitespace()).unwrap();
        }
        let wrong = [
            "nearside",
            "nearside format",
            "nearside format P --size 1KB",
            "nearside x",
            "nearside mount POOL DIR --move-data sideways",
            "nearside set POOL:/a",
            "nearside set POOL:/a move-data=sideways",
            "nearside trace DIR --seconds 0",
            "nearside trace DIR --calls 4000001",
            "nearside simulate --workload ycsb-a --bytes 4K",
            "nearside simulate --trace FILE --threads 4",
            "nearside calibrate POOL --seconds 61",
            "nearside simulate --milliseconds 0",
            "nearside simulate --kind append",
            "nearside mount POOL DIR --http 9399",
            "nearside mount POOL DIR --http 127.0.0.1:9399 --metrics 127.0.0.1:9399",
            "nearside mount POOL DIR --socket /run/s",
            "nearside serve POOL --socket-mode 888",
            "nearside serve POOL --listen 127.0.0.1",
            "nearside serve POOL --insecure",
            "nearside serve POOL --listen ::1 --insecure --credentials DIR",
            "nearside serve POOL --listen ::1 --credentials DIR --listen-as 0:0",
            "nearside serve POOL --listen ::1 --insecure --access FILE",
            "nearside serve POOL --credentials DIR",
            "nearside cert DIR --revoke A --client B",
            "nearside cert DIR --days 0",
            "nearside cert",
            "nearside stats DIR --every 0",
            "nearside format P --size 1G --data-copies 3",
            "nearside resilver POOL --onto /dev/dax1.0",
            "nearside tier POOL",
            "nearside tier flush",
            "nearside bench deck --array 1KB",
            "nearside bench sharing --processes 0",
            "nearside region POOL /a",
            "nearside region create POOL /a",
            "nearside region create POOL /a --size 0",
            "nearside region create POOL /a --size 1K --mode 8",
        ];
        for line in wrong {
            assert!(Cli::try_parse_from(line.split_whitespace()).is_err(), "{line}");
        }
    }
}

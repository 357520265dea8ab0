//! Measurements that are more than a row, as verbs of the command line.

use crate::deck::{self, DeckOptions};
use crate::engine::{self, EngineOptions};
use crate::error::{Result, io};
use crate::interrupt;
use crate::options::Options;
use crate::remote::{self, RemoteOptions};
use crate::service::{self, Figure, ServiceOptions};
use crate::sharing::{self, SharingOptions};
use crate::ycsb::{self, YcsbOptions};
use clap::Subcommand;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Measurements that are more than a row.
#[derive(Clone, Debug, Subcommand)]
pub enum Study {
    /// A small transaction for each page of a large array: regions beside PMDK, SoftWrAP's scheme,
    /// LMDB, SQLite and the bare store, in turns.
    #[command(after_help = "\
Examples:
  nearside bench deck --quick
  nearside bench deck --array 2G --json

The peers' libraries are used where they are installed with their headers (Debian: libpmemobj-dev,
liblmdb-dev, libsqlite3-dev) and there is a C compiler.")]
    Deck {
        /// Bytes of the array; it takes eight times as much [default: 2G, quick: 128M].
        #[arg(long, value_name = "SIZE", value_parser = parse_size)]
        array: Option<u64>,
        /// Turns of each that count [default: 5, and 3 of those that write the array 16 times].
        #[arg(long, value_name = "COUNT")]
        rounds: Option<usize>,
        /// How full of the array our pool is, in percent [default: 50].
        #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(10..=92))]
        full: Option<u8>,
    },
    /// Reads and writes of large records in YCSB's mixes: a pool with a capacity tier beside one in
    /// memory as a whole and files that are synced.
    #[command(after_help = "\
Examples:
  nearside bench ycsb --plot bars.svg
  nearside bench ycsb --scale 4 --disk /var/tmp --json

--dir names where slices lie, --disk where the tier's device and the files do.")]
    Ycsb {
        /// Draw the bars into this file, as SVG.
        #[arg(long, value_name = "FILE")]
        plot: Option<PathBuf>,
        /// Cache and turns so many times as large; 1: a cache of 256 MiB, four minutes.
        #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = parse_scale)]
        scale: f64,
        /// Turns of each that count.
        #[arg(long, value_name = "COUNT", default_value_t = 3)]
        rounds: usize,
    },
    /// RocksDB with synced writes on files of a pool with a capacity tier, behind a mount, beside
    /// the same on ext4 on loop devices: in the slice's memory, and on the tier's disk.
    #[command(after_help = "\
Examples:
  nearside bench engine --quick
  nearside bench engine --direct --disk /var/tmp --json

RocksDB is used where it is installed with its headers (Debian: librocksdb-dev) and there is a C
compiler. Mounts take root; nobody else sees them, and they go with the command, as the loop
devices do. --dir names where the slice lies, --disk where the tier's device does.")]
    Engine {
        /// Slice and records so many times as large; 1: a slice of 256 MiB, records of 512 MiB.
        #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = parse_scale)]
        scale: f64,
        /// Turns of each that count.
        #[arg(long, value_name = "COUNT", default_value_t = 5)]
        rounds: usize,
        /// Threads that read and write.
        #[arg(long, value_name = "COUNT", default_value_t = 4)]
        #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
        clients: u32,
        /// Pass by the page cache: RocksDB opens its tables with O_DIRECT.
        #[arg(long)]
        direct: bool,
    },
    /// Processes that share a pool by way of its service: writes under a lease, leases handed over,
    /// attaching, and many that do nothing.
    #[command(after_help = "\
Examples:
  nearside bench service --quick
  nearside bench service --idle 5000 --json")]
    Service {
        /// Turns of each that count.
        #[arg(long, value_name = "COUNT", default_value_t = 9)]
        rounds: usize,
        /// Processes that are attached and do nothing.
        #[arg(long, value_name = "COUNT", default_value_t = 1000)]
        idle: usize,
    },
    /// Durable writes over a network: beside the bare transport, synced files of ext4 and XFS
    /// behind the same transport, and Redis.
    #[command(after_help = "\
Examples:
  nearside bench remote --quick
  nearside bench remote --disk /var/tmp --json

Everything is on loopback. The kernel's file systems are on loop devices, in memory (--dir) and on
a disk (--disk); they take root, mkfs.ext4 and mkfs.xfs, and go with the command. Redis is used
where it is installed (Debian: redis-server).")]
    Remote {
        /// Draw what half of the writes took into this file, as SVG.
        #[arg(long, value_name = "FILE")]
        plot: Option<PathBuf>,
        /// Turns of each that count.
        #[arg(long, value_name = "COUNT", default_value_t = 7)]
        rounds: usize,
        /// Connections that do nothing.
        #[arg(long, value_name = "COUNT", default_value_t = 1000)]
        idle: usize,
    },
    /// YCSB's mixes by several processes at once: attached to the service of one pool, beside as
    /// many that have a pool each, and in containers.
    #[command(after_help = "\
Examples:
  nearside bench sharing --quick
  nearside bench sharing --processes 2 --json

A container has namespaces of its own and nothing of the pool but the socket; it takes unshare(1),
and root or a kernel that lets everybody make them.")]
    Sharing {
        /// Processes that work at once.
        #[arg(long, value_name = "COUNT", default_value_t = 4)]
        #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
        processes: u32,
        /// Records and turns so many times as large; 1: 32 MiB a process, a minute and a half.
        #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = parse_scale)]
        scale: f64,
        /// Turns of each that count.
        #[arg(long, value_name = "COUNT", default_value_t = 5)]
        rounds: usize,
    },
}

/// Bytes: a number, and K, M, G or T behind it for powers of 1024.
fn parse_size(text: &str) -> std::result::Result<u64, String> {
    let shift = ["K", "M", "G", "T"].iter().position(|unit| text.ends_with(unit));
    let digits = if shift.is_some() { &text[..text.len() - 1] } else { text };
    let number: u64 = digits.parse().map_err(|_| format!("{text}: no size, as 512M is one"))?;
    let factor = 1u64 << shift.map_or(0, |power| 10 * (power + 1));
    let bytes = number.checked_mul(factor).filter(|bytes| *bytes >= MIB_BYTES_MIN << 20);
    bytes.ok_or_else(|| format!("{text}: at least {MIB_BYTES_MIN}M"))
}

/// MiB of the smallest array: a pool twice its size has room for a log.
const MIB_BYTES_MIN: u64 = 16;

fn parse_scale(text: &str) -> std::result::Result<f64, String> {
    let scale = text.parse().ok().filter(|scale| (0.1..=1000.0).contains(scale));
    scale.ok_or_else(|| format!("{text}: between 0.1 and 1000"))
}

/// Measures; gives what `print` has not been given yet, the parts of tables, or all as JSON.
///
/// # Errors
/// What the engine, the kernel or a peer's program said.
pub fn study(
    options: &Options,
    study: &Study,
    json: bool,
    print: &mut (dyn FnMut(&str) + Send),
) -> Result<()> {
    service::be_seated_if_asked();
    interrupt::clean_up_after(options);
    match study {
        Study::Deck { array, rounds, full } => {
            let asked = DeckOptions { array_bytes: *array, rounds: *rounds, full_percent: *full };
            let deck = deck::deck(options, &asked, &mut |deck, figures| {
                if !json {
                    print(&deck::table(deck, figures));
                }
            })?;
            if json {
                print(&as_json(&deck)?)
            }
        }
        Study::Ycsb { plot, scale, rounds } => {
            let asked = YcsbOptions { scale: *scale, rounds: *rounds };
            let ycsb = ycsb::ycsb(options, &asked, &mut |ycsb, bars| {
                if !json {
                    print(&ycsb::table(ycsb, bars));
                }
            })?;
            if let Some(path) = plot {
                ycsb::plot(path, &ycsb)?;
            }
            let text = if json { as_json(&ycsb)? } else { ycsb::summary(&ycsb) };
            print(&text);
        }
        Study::Engine { scale, rounds, clients, direct } => {
            let asked = EngineOptions {
                scale: *scale,
                rounds: *rounds,
                clients: *clients,
                direct: *direct,
            };
            let engine = engine::engine(options, &asked, &mut |engine, figures| {
                if !json {
                    print(&engine::table(engine, figures));
                }
            })?;
            let text = if json { as_json(&engine)? } else { engine::tail(&engine) };
            print(&text);
        }
        Study::Service { rounds, idle } => {
            let asked = ServiceOptions { rounds: *rounds, idle: *idle };
            figures(json, print, |show| service::service(options, &asked, show))?;
        }
        Study::Remote { plot, rounds, idle } => {
            let asked = RemoteOptions { rounds: *rounds, idle: *idle };
            let all = figures(json, print, |show| remote::remote(options, &asked, show))?;
            plot.as_ref().map_or(Ok(()), |path| remote::draw(path, &all))?;
        }
        Study::Sharing { processes, scale, rounds } => {
            let asked = SharingOptions { processes: *processes, scale: *scale, rounds: *rounds };
            figures(json, print, |show| sharing::sharing(options, &asked, show))?;
        }
    }
    Ok(())
}

/// Gives figures, each when it is there, or all as JSON.
fn figures(
    json: bool,
    print: &mut (dyn FnMut(&str) + Send),
    measure: impl FnOnce(&mut (dyn FnMut(&Figure) + Send)) -> Result<Vec<Figure>>,
) -> Result<Vec<Figure>> {
    let all = measure(&mut |figure| {
        if !json {
            print(&service::table(std::slice::from_ref(figure)));
        }
    })?;
    if json {
        print(&as_json(&all)?);
    }
    Ok(all)
}

fn as_json(value: &impl Serialize) -> Result<String> {
    let text = serde_json::to_string_pretty(value).map_err(std::io::Error::other);
    Ok(text.map_err(io(Path::new("stdout")))? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_and_a_least() {
        assert_eq!(parse_size("2G"), Ok(2 << 30));
        assert_eq!(parse_size("16777216"), Ok(16 << 20));
        for wrong in ["", "G", "1K", "2GB", "-1G", "99999999999T"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
        assert!(parse_scale("0").is_err() && parse_scale("0.5") == Ok(0.5));
    }
}

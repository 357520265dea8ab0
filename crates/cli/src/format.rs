//! `nearside format`: makes a pool.

use std::path::Path;

use nearside::{FormatOptions, Pool, SliceInfo, SliceSpec};
use serde::Serialize;

use crate::access;
use crate::args::{Durability, FormatArgs};
use crate::error::{self, Error, Result};
use crate::progress::Bar;
use crate::{output, plan, signals, size};

#[derive(Serialize)]
struct Made {
    pool: String,
    uuid: String,
    domain: &'static str,
    /// Slices and devices that no restart leaves, though what is synced is to survive one.
    in_memory: Vec<String>,
    slices: usize,
    /// For what is stored; with two copies the files take twice as much.
    bytes: u64,
    data_copies: u32,
    /// Devices of the capacity tier.
    devices: usize,
    /// For what is stored there.
    device_bytes: u64,
}

/// Makes a pool.
pub fn run(args: &FormatArgs) -> Result<()> {
    let options = options(args)?;
    // what cannot be is found before anything is made
    let plan = plan::plan(&args.pool, &options)?;
    if args.dry_run {
        return if args.json { output::json(&plan) } else { output::text(&plan::text(&plan)) };
    }
    signals::end_between_steps();
    let bar = Bar::new("formatting");
    let mut each = |done, of| {
        bar.set(done, of);
        signals::asked_to_end().is_none()
    };
    let formatted = Pool::format_watched(&args.pool, &options, &mut each);
    formatted.map_err(|error| match signals::asked_to_end() {
        Some(signal) if error.errno() == libc::EINTR => Error::Stopped(signal),
        _ => error::pool(&args.pool)(error),
    })?;
    let made = describe(args)?;
    drop(bar);
    for slice in &made.in_memory {
        output::complain(&format!(
            "{slice} lies in memory (tmpfs): a restart of the machine takes all of it, whatever is \
             synced"
        ));
    }
    if args.json {
        return output::json(&made);
    }
    output::text(&format!(
        "{}: {}, {}{}{}, durability domain {}; mount it with: nearside mount {} DIR\n",
        made.pool,
        counted(made.slices, "slice"),
        size::show(made.bytes),
        if made.data_copies == 2 { " twice" } else { "" },
        match made.devices {
            0 => String::new(),
            count => {
                let devices = counted(count, "device");
                format!(", a capacity tier of {devices}, {}", size::show(made.device_bytes))
            }
        },
        made.domain,
        output::quoted(&args.pool),
    ))
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Opens what was made, for only an open pool knows its domain.
fn describe(args: &FormatArgs) -> Result<Made> {
    let pool = access::opened(&args.pool)?;
    let info = pool.info();
    let is_lost = |slice: &&SliceInfo| slice.medium == "tmpfs" && slice.domain == "sync";
    let in_memory =
        info.slices.iter().filter(is_lost).map(|slice| slice.path.display().to_string());
    // what is on a device is nowhere else
    let promises = info.domain != "process";
    let is_in_memory = |path: &&String| promises && lies_in_memory(Path::new(path));
    let devices = info.devices.iter().map(|device| &device.path).filter(is_in_memory).cloned();
    Ok(Made {
        pool: args.pool.display().to_string(),
        uuid: info.uuid,
        domain: info.domain,
        in_memory: in_memory.chain(devices).collect(),
        slices: info.slices.len(),
        bytes: info.slices.iter().map(|slice| slice.bytes).sum(),
        data_copies: args.data_copies,
        devices: info.devices.len(),
        device_bytes: info.devices.iter().map(|device| device.bytes).sum(),
    })
}

/// Whether it is a file that a restart of the machine takes.
fn lies_in_memory(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|status| status.f_type == libc::TMPFS_MAGIC)
}

fn options(args: &FormatArgs) -> Result<FormatOptions> {
    let named = args.slice.len();
    let count = args.slices.map_or(named.max(1), |count| count as usize);
    if count < named {
        return Err(Error::Usage(format!("--slices {count}, but --slice is given {named} times")));
    }
    if args.size.is_none() && count > named {
        return Err(Error::Usage("give the size of a slice: --size 1G".to_owned()));
    }
    let mut slices = args.slice.clone();
    slices.resize(count, SliceSpec::default());
    Ok(FormatOptions {
        slices,
        // Only asked for by slices that are devices, which know their size, when it is 0.
        slice_bytes: args.size.unwrap_or(0),
        virtual_nodes: args.virtual_nodes,
        process: args.durability == Some(Durability::Process),
        log_bytes: args.log,
        log_line_bytes: args.log_line,
        stripe_bytes: args.stripe,
        force: args.force,
        data_copies: args.data_copies,
        capacity: args.capacity.clone(),
        ..FormatOptions::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    fn parsed(line: &str) -> Result<FormatOptions> {
        match Cli::try_parse_from(line.split_whitespace()).unwrap().command {
            Command::Format(args) => options(&args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn named_slices_come_first_and_files_follow() {
        let made = parsed("nearside format P --slices 3 --size 1G --slice /dev/dax0.0").unwrap();
        assert_eq!(made.slices.len(), 3);
        assert_eq!(made.slices[0].path, Some("/dev/dax0.0".into()));
        assert!(made.slices[1].path.is_none() && made.slices[2].path.is_none());
        assert_eq!(made.slice_bytes, 1 << 30);
        assert!(!made.process);
    }

    #[test]
    fn the_length_of_the_logs_lines_is_the_devices_unless_asked_for() {
        for (option, expected) in
            [("", None), (" --log-line 64", Some(64)), (" --log-line=256", Some(256))]
        {
            let made = parsed(&format!("nearside format P --size 1G{option}")).unwrap();
            assert_eq!(made.log_line_bytes, expected);
        }
        for wrong in ["0", "128", "256B", "-64", "lines"] {
            let line = ["nearside", "format", "P", "--size=1G", "--log-line", wrong];
            let error = Cli::try_parse_from(line).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{wrong}");
            assert!(wrong == "-64" || error.to_string().contains("64 or 256 bytes"), "{error}");
        }
    }

    #[test]
    fn wrong_usage_is_found_before_anything_is_made() {
        for line in [
            "nearside format P",
            "nearside format P --slices 2 --slice /dev/dax0.0",
            "nearside format P --slices 1 --size 1G --slice /a --slice /b",
        ] {
            assert_eq!(parsed(line).unwrap_err().exit_code(), 2, "{line}");
        }
    }
}

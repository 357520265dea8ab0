//! `nearside bench`: not built yet.

use std::path::PathBuf;

use clap::Args;

use crate::error::{Error, Result};

/// Arguments of `bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Directory for the scratch pool.
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Run this measurement only.
    #[arg(long, value_name = "NAME")]
    pub only: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Measures.
pub fn run(args: &BenchArgs) -> Result<()> {
    let _ = (&args.dir, &args.only, args.json);
    Err(Error::Missing("bench"))
}

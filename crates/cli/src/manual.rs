//! `nearside man` and `nearside completions`: what shells and man(1) want to know.

use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::args::Cli;
use crate::error::{self, Result};
use crate::output;

/// Arguments of `completions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside completions bash > /etc/bash_completion.d/nearside
  nearside completions zsh > /usr/local/share/zsh/site-functions/_nearside
  nearside completions fish > ~/.config/fish/completions/nearside.fish")]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Arguments of `man`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside man | man -l -
  nearside man --out /usr/local/share/man/man1    a page for each verb, too")]
pub struct ManArgs {
    /// Write all pages into this directory, instead of the first to stdout.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// Prints the completion of a shell.
pub fn completions(args: &CompletionsArgs) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "nearside", &mut script);
    // bash's generator does not leave out what is hidden
    let command = Cli::command();
    let options = command.get_subcommands().flat_map(clap::Command::get_arguments);
    let hidden = options.filter(|option| option.is_hide_set()).filter_map(clap::Arg::get_long);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    for long in hidden {
        script = script.replace(&format!(" --{long}"), "");
    }
    output::bytes(script.as_bytes())
}

/// Prints the manual, or writes it.
pub fn man(args: &ManArgs) -> Result<()> {
    match &args.out {
        Some(dir) => {
            std::fs::create_dir_all(dir).map_err(error::io(dir))?;
            clap_mangen::generate_to(pages(), dir).map_err(error::io(dir))
        }
        None => {
            let mut page = Vec::new();
            let drawn = clap_mangen::Man::new(pages()).render(&mut page);
            drawn.map_err(error::Error::Output)?;
            output::bytes(&page)
        }
    }
}

/// The command as the manual shows it: with its version, but not with the facts of one build.
fn pages() -> clap::Command {
    Cli::command().long_version(None::<&'static str>)
}

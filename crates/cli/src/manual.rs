//! `anabranch completions` and `anabranch man`: for shells and for `man`, from the same description as
//! `--help`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use clap_complete::Shell;

use crate::Cli;
use crate::failure::Failure;
use crate::printer::on_stdout;

/// The command's name.
const NAME: &str = "anabranch";

/// Arguments of `completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
bash:  anabranch completions bash > ~/.local/share/bash-completion/completions/anabranch
zsh:   anabranch completions zsh > FOLDER/_anabranch, FOLDER being in $fpath
fish:  anabranch completions fish > ~/.config/fish/completions/anabranch.fish")]
pub struct Completions {
    /// The shell
    shell: Shell,
}

/// Arguments of `man`.
#[derive(Debug, clap::Args)]
pub struct Man {
    /// Folder to write a page of each verb into, such as /usr/local/share/man/man1; it is made if it is
    /// missing. Without it, the page of anabranch itself goes to standard output
    folder: Option<PathBuf>,
}

/// Writes a shell's completions to standard output.
pub fn completions(args: &Completions) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), NAME, &mut script);
    on_stdout(|stdout| stdout.write_all(&script))
}

/// Writes the manual.
pub fn man(args: &Man) -> Result<(), Failure> {
    // `help` says nothing that the pages do not.
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let Some(folder) = &args.folder else {
        let page = page(command).map_err(|error| Failure::new(format!("cannot write the manual: {error}")))?;
        return on_stdout(|stdout| stdout.write_all(&page));
    };
    let cannot = |error: io::Error| Failure::new(format!("cannot write the manual to {}: {error}", folder.display()));
    fs::create_dir_all(folder).map_err(cannot)?;
    write(command, NAME.to_owned(), folder).map_err(cannot)
}

/// A page of `command` and of each verb below it.
fn write(command: clap::Command, name: String, folder: &Path) -> io::Result<()> {
    for below in command.get_subcommands() {
        let called = format!("{name}-{}", below.get_name());
        write(below.clone(), called, folder)?;
    }
    fs::write(folder.join(format!("{name}.1")), page(command)?)
}

fn page(command: clap::Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_of_the_command_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_verb_has_a_page_and_every_option_is_on_it() {
        let folder = tempfile::tempdir().unwrap();
        man(&Man { folder: Some(folder.path().join("man1")) }).unwrap();
        let read = |name: &str| fs::read_to_string(folder.path().join("man1").join(format!("{name}.1"))).unwrap();
        let mut command = Cli::command();
        command.build();
        for verb in command.get_subcommands().filter(|verb| verb.get_name() != "help") {
            let page = read(&format!("{NAME}-{}", verb.get_name()));
            for option in verb.get_opts().filter_map(clap::Arg::get_long) {
                let escaped = option.replace('-', "\\-");
                assert!(page.contains(&escaped), "{} has no {option}", verb.get_name());
            }
        }
        for page in ["anabranch", "anabranch-quic-send", "anabranch-send"] {
            assert!(read(page).contains(".SH NAME"), "{page}");
        }
    }

    #[test]
    fn every_shell_learns_the_verbs() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::PowerShell, Shell::Elvish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), NAME, &mut script);
            let script = String::from_utf8(script).unwrap();
            for word in ["receive", "send", "--relays", "completions"] {
                // Fish writes options without their dashes.
                assert!(script.contains(word.trim_start_matches('-')), "{shell}: {word}");
            }
        }
    }
}

//! Scripts that are sent with a job. Lines `#HAYWARD --cpu 2 --time 1h` at their beginning have
//! flags of `hayward submit`, as in scripts of Slurm (TC-68).

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use hayward_job_converter_api::submission::ScriptSubmission;

use super::{Arguments, display_name, read_text};

/// Beginning of a line with flags.
const FLAG_LINE: &str = "#HAYWARD";

/// Parses the command line again, with the flags of a script. The command line wins.
pub type ParseAgain = fn(flags: &[String]) -> anyhow::Result<Arguments>;

/// A script, and the arguments of the command line together with those of the script.
pub struct LoadedScript {
    pub script: ScriptSubmission,
    pub arguments: Arguments,
}

/// Reads the script that the arguments name. Returns `None` if they name a program.
pub fn load(
    arguments: &Arguments,
    parse_again: ParseAgain,
) -> anyhow::Result<Option<LoadedScript>> {
    let Some(file) = script_file(arguments) else {
        return Ok(None);
    };
    let text = read_text(&file)?;
    let flags = flags_of(&text).with_context(|| display_name(&file))?;
    let mut arguments = if flags.is_empty() {
        arguments.clone()
    } else {
        parse_again(&flags)
            .with_context(|| format!("the {FLAG_LINE} lines of {}", display_name(&file)))?
    };
    if arguments.script.is_none() {
        arguments.command.remove(0);
    }
    let name = file.file_name().and_then(|name| name.to_str());
    let script = ScriptSubmission {
        text,
        interpreter: Vec::new(),
        name: name.filter(|name| *name != "-").map(str::to_owned),
    };
    Ok(Some(LoadedScript { script, arguments }))
}

/// Returns the file of `--script`, or a first word that is a script of this computer. An absolute
/// path is a program of the node.
fn script_file(arguments: &Arguments) -> Option<PathBuf> {
    if let Some(file) = &arguments.script {
        return Some(file.clone());
    }
    let word = Path::new(arguments.command.first()?);
    let is_script = !word.is_absolute() && word.is_file() && begins_as_script(word);
    is_script.then(|| word.to_owned())
}

fn begins_as_script(file: &Path) -> bool {
    let mut start = [0; 2];
    let read = File::open(file).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start == *b"#!"
}

/// Returns the flags before the first line that is neither blank nor a comment.
fn flags_of(text: &str) -> anyhow::Result<Vec<String>> {
    let mut flags = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if !line.is_empty() && !line.starts_with('#') {
            break;
        }
        let rest = line.strip_prefix(FLAG_LINE);
        if let Some(rest) = rest.filter(|rest| rest.starts_with([' ', '\t'])) {
            let Some(words) = shlex::split(rest) else {
                bail!("line {}: a quote is not closed", index + 1);
            };
            flags.extend(words);
        }
    }
    Ok(flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "\
#!/bin/bash
# a comment
#HAYWARD --time 1h --memory 2G
#HAYWARD --name 'two words' --env A=1

#HAYWARDING --cpu 9
echo begin
#HAYWARD --cpu 8
";

    #[test]
    fn flags_end_at_the_first_line_of_the_program() {
        let expected = [
            "--time",
            "1h",
            "--memory",
            "2G",
            "--name",
            "two words",
            "--env",
            "A=1",
        ];
        assert_eq!(flags_of(SCRIPT).unwrap(), expected);
        assert!(flags_of("#HAYWARD --name 'x").is_err());
    }
}

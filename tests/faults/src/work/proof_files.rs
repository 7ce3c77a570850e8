//! Reads the proof files, in which the runs of work have recorded their starts and ends.

use std::collections::BTreeSet;
use std::fs;

use super::Item;

/// The content of the proof file of one piece of work.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Proof {
    /// Task and random number of each run that began.
    pub started: BTreeSet<(String, String)>,
    /// Task and random number of each run that ended.
    pub ended: BTreeSet<(String, String)>,
    /// Lines of processes of exclusive work that found another process running.
    pub overlaps: Vec<String>,
}

pub fn read_proof(item: &Item) -> Proof {
    let text = fs::read_to_string(item.proofs.join("log")).unwrap_or_default();
    parse_proof(&text)
}

fn parse_proof(text: &str) -> Proof {
    let mut proof = Proof::default();
    // The last line may be incomplete.
    let complete_lines = text
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'));
    for line in complete_lines {
        let line = line.trim_end();
        let fields: Vec<&str> = line.split(' ').collect();
        match fields.as_slice() {
            ["start", task, number] => {
                proof
                    .started
                    .insert(((*task).to_owned(), (*number).to_owned()));
            }
            ["end", task, number] => {
                proof
                    .ended
                    .insert(((*task).to_owned(), (*number).to_owned()));
            }
            ["twice", ..] => proof.overlaps.push(line.to_owned()),
            _ => {}
        }
    }
    proof
}

/// Returns the names of the live workers of a pool. Each worker has written its process id to a
/// file with its name.
pub fn live_workers(item: &Item) -> BTreeSet<String> {
    let files = fs::read_dir(&item.proofs).into_iter().flatten().flatten();
    let live = files.filter_map(|file| {
        let pid = fs::read_to_string(file.path()).ok()?;
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).ok()?;
        // The state follows the name of the process, which is in brackets.
        let (_, state) = stat.rsplit_once(") ")?;
        let name = file.file_name().to_string_lossy().into_owned();
        // Z is the state of a zombie, which has ended.
        (!state.starts_with('Z')).then_some(name)
    });
    live.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incomplete_line_proves_nothing() {
        let proof = parse_proof("start 0 a\nend 0 a\nstart 1 b\nend 1 b");
        assert_eq!(proof.started.len(), 2);
        assert!(proof.ended.contains(&("0".into(), "a".into())));
        assert_eq!(proof.ended.len(), 1);
    }

    #[test]
    fn an_overlap_of_processes_is_found() {
        assert_eq!(
            parse_proof("start 0 x\ntwice 0 y\n").overlaps,
            ["twice 0 y"]
        );
    }
}

//! Makes the tasks of a job from lines of text, one task for each line.

use anyhow::bail;

/// Maximum number of lines in a job. The service refuses more.
const MAX_LINES: usize = 100_000;

/// Returns one argument vector for each line, with the line as its single argument. Blank lines are
/// allowed at the end only, so that task numbers equal line numbers.
pub fn arguments_from_lines(text: &str) -> anyhow::Result<Vec<Vec<String>>> {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    if lines.is_empty() {
        bail!("there is no line in it, so there would be no task");
    }
    if let Some(index) = lines.iter().position(|line| line.trim().is_empty()) {
        bail!(
            "line {} is blank, and a task has the number of its line: remove it, or write the \
             argument of the task",
            index + 1
        );
    }
    if lines.len() > MAX_LINES {
        bail!(
            "it has {} lines, and a job may have {MAX_LINES}: split it, \
             as with `split -l {MAX_LINES}`, or use --count and let each task find its line \
             by its number",
            lines.len()
        );
    }
    Ok(lines.iter().map(|line| vec![(*line).to_owned()]).collect())
}

#[cfg(test)]
mod tests {
    use super::arguments_from_lines;

    #[test]
    fn each_line_becomes_the_argument_of_one_task() {
        let arguments = arguments_from_lines("a b\nc\r\n{task} \"d\"\n\n").unwrap();
        assert_eq!(arguments, [vec!["a b"], vec!["c"], vec!["{task} \"d\""]]);
        assert!(arguments_from_lines(" \n\n").is_err());
    }

    #[test]
    fn a_blank_line_between_others_is_refused_with_its_number() {
        let fault = arguments_from_lines("a\n \nb\n").unwrap_err().to_string();
        assert!(fault.starts_with("line 2 is blank"), "{fault}");
    }

    #[test]
    fn more_lines_than_a_job_may_have_are_refused_with_a_remedy() {
        let fault = arguments_from_lines(&"x\n".repeat(100_001))
            .unwrap_err()
            .to_string();
        assert!(
            fault.contains("100001 lines") && fault.contains("split -l"),
            "{fault}"
        );
    }
}

//! Parses numbers of tasks, such as `5-9` or `12`.

use hayward_job_converter_domain::RangeSet;
use hayward_service::http::problem::{Code, Problem};

/// Maximum number of numbers and ranges in one request.
const MAX_ITEMS: usize = 1_000;

/// Parses numbers and ranges. A number may be named more than once.
///
/// # Errors
/// With a fault for each item that is not one.
pub fn parse_task_numbers(items: &[String]) -> Result<RangeSet, Problem> {
    let mut problem = Problem::new(Code::Invalid, "these are no numbers of tasks");
    if items.is_empty() || items.len() > MAX_ITEMS {
        let detail = format!("takes 1 to {MAX_ITEMS} numbers or ranges, such as \"5-9\"");
        return Err(problem.at("/tasks", detail));
    }
    let mut numbers = RangeSet::default();
    for (index, item) in items.iter().enumerate() {
        match parse_item(item) {
            Ok((start, end)) => numbers.insert_span(start, end),
            Err(detail) => problem = problem.at(format!("/tasks/{index}"), detail),
        }
    }
    if problem.errors.is_empty() {
        Ok(numbers)
    } else {
        Err(problem)
    }
}

/// Parses a number or a range. Returns its first number and one past its last.
fn parse_item(item: &str) -> Result<(u64, u64), String> {
    let (first, last) = item.split_once('-').unwrap_or((item, item));
    let (Some(first), Some(last)) = (parse_number(first), parse_number(last)) else {
        return Err(format!(
            "{item:?} is no number and no range such as \"5-9\""
        ));
    };
    if first > last {
        return Err(format!("begins after its end: write \"{last}-{first}\""));
    }
    Ok((first, last + 1))
}

fn parse_number(text: &str) -> Option<u64> {
    let has_digits_only = text.bytes().all(|byte| byte.is_ascii_digit());
    let is_short = text.len() <= 18;
    (has_digits_only && is_short).then(|| text.parse().ok())?
}

/// Writes numbers as they are parsed: `5-9,12`. Shows the first ranges only.
pub fn format_task_numbers(numbers: &RangeSet) -> String {
    const MAX_SHOWN: usize = 8;
    let text = |(start, end): (u64, u64)| match end - start {
        1 => start.to_string(),
        _ => format!("{start}-{}", end - 1),
    };
    let shown: Vec<String> = numbers.spans().take(MAX_SHOWN).map(text).collect();
    let more = if numbers.spans().nth(MAX_SHOWN).is_some() {
        ",…"
    } else {
        ""
    };
    format!("{}{more}", shown.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(items: &[&str]) -> Result<String, Vec<String>> {
        let items: Vec<String> = items.iter().map(|item| (*item).to_owned()).collect();
        let pointers = |problem: Problem| problem.errors.into_iter().map(|fault| fault.pointer);
        parse_task_numbers(&items)
            .map(|numbers| format_task_numbers(&numbers))
            .map_err(|problem| pointers(problem).collect())
    }

    #[test]
    fn numbers_and_ranges_are_merged_in_order() {
        assert_eq!(parse(&["12", "5-9", "7-8", "0"]).unwrap(), "0,5-9,12");
        let many: Vec<String> = (0..20).map(|number| (number * 2).to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(parse(&many).unwrap(), "0,2,4,6,8,10,12,14,…");
    }

    #[test]
    fn each_item_that_is_no_number_is_refused_at_its_pointer() {
        for item in [
            "",
            "-",
            "a",
            "1-",
            "-1",
            "+1",
            "1-2-3",
            "9-5",
            "1 ",
            "9999999999999999999",
        ] {
            assert_eq!(parse(&["1", item]).unwrap_err(), ["/tasks/1"], "{item}");
        }
        assert_eq!(parse(&[]).unwrap_err(), ["/tasks"]);
        assert_eq!(parse(&vec!["1"; 1_001]).unwrap_err(), ["/tasks"]);
    }
}

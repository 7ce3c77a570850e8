//! Finds the metrics, labels and compared values of a PromQL expression. Validation is the task of
//! promtool.

use std::iter::Peekable;
use std::str::Chars;

/// A metric with the matchers of its series.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector {
    pub metric: String,
    pub matchers: Vec<Matcher>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matcher {
    pub label: String,
    /// Operator `=`, `!=`, `=~` or `!~`.
    pub how: String,
    pub value: String,
}

/// The metrics and labels of one expression.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Used {
    pub selectors: Vec<Selector>,
    /// Labels after `by`, `on` and similar words.
    pub labels: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    Text(String),
    Other(String),
}

/// Words that are followed by labels in parentheses.
const LISTS: [&str; 6] = [
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
];
const OPERATORS: [&str; 6] = ["and", "or", "unless", "bool", "offset", "atan2"];

/// # Errors If a bracket stays open, or a token is not allowed at its place.
pub fn used(expression: &str) -> Result<Used, String> {
    let mut reader = Reader {
        tokens: tokens(expression)?,
        at: 0,
        used: Used::default(),
    };
    reader.read()?;
    Ok(reader.used)
}

struct Reader {
    tokens: Vec<Token>,
    at: usize,
    used: Used,
}

impl Reader {
    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    fn follows(&self, what: &str) -> bool {
        matches!(self.tokens.get(self.at), Some(Token::Other(sign)) if sign == what)
    }

    fn read(&mut self) -> Result<(), String> {
        let mut open = 0_usize;
        while let Some(token) = self.next() {
            match token {
                Token::Other(sign) if sign == "(" => open += 1,
                Token::Other(sign) if sign == ")" => {
                    open = open
                        .checked_sub(1)
                        .ok_or("a parenthesis closes that was not open")?;
                }
                Token::Other(sign) if sign == "[" => self.pass("]")?,
                Token::Other(sign) if sign == "{" => return Err("series without a metric".into()),
                Token::Word(word) => self.word(&word)?,
                Token::Other(_) | Token::Text(_) => {}
            }
        }
        if open == 0 {
            Ok(())
        } else {
            Err("a parenthesis stays open".into())
        }
    }

    fn word(&mut self, word: &str) -> Result<(), String> {
        let lower = word.to_ascii_lowercase();
        if OPERATORS.contains(&lower.as_str()) {
            return Ok(());
        }
        let opens = self.follows("(");
        if LISTS.contains(&lower.as_str()) {
            return if opens { self.labels() } else { Ok(()) };
        }
        if lower == "label_values" && opens {
            // This function of Grafana has a metric, and the label whose values it lists.
            self.at += 1;
            return self.label_values();
        }
        let grouped = matches!(self.tokens.get(self.at), Some(Token::Word(next))
            if ["by", "without"].contains(&next.to_ascii_lowercase().as_str()));
        if !opens && !grouped {
            self.selector(word)?;
        }
        Ok(())
    }

    fn label_values(&mut self) -> Result<(), String> {
        let Some(Token::Word(metric)) = self.next() else {
            return Err("label_values names no metric".into());
        };
        self.selector(&metric)?;
        match (self.next(), self.next(), self.next()) {
            (Some(_), Some(Token::Word(label)), Some(Token::Other(end))) if end == ")" => {
                self.used.labels.push(label);
                Ok(())
            }
            _ => Err("label_values names no label".into()),
        }
    }

    fn labels(&mut self) -> Result<(), String> {
        self.at += 1;
        loop {
            match self.next() {
                Some(Token::Word(label)) => self.used.labels.push(label),
                Some(Token::Other(sign)) if sign == "," => {}
                Some(Token::Other(sign)) if sign == ")" => return Ok(()),
                other => return Err(format!("no label: {other:?}")),
            }
        }
    }

    fn selector(&mut self, metric: &str) -> Result<(), String> {
        let mut matchers = Vec::new();
        if self.follows("{") {
            self.at += 1;
            while !self.follows("}") {
                if self.follows(",") {
                    self.at += 1;
                    continue;
                }
                match (self.next(), self.next(), self.next()) {
                    (
                        Some(Token::Word(label)),
                        Some(Token::Other(how)),
                        Some(Token::Text(value)),
                    ) => matchers.push(Matcher { label, how, value }),
                    other => return Err(format!("no matcher of {metric}: {other:?}")),
                }
            }
            self.at += 1;
        }
        self.used.selectors.push(Selector {
            metric: metric.to_owned(),
            matchers,
        });
        Ok(())
    }

    fn pass(&mut self, end: &str) -> Result<(), String> {
        while let Some(token) = self.next() {
            if token == Token::Other(end.to_owned()) {
                return Ok(());
            }
        }
        Err(format!("{end} is missing"))
    }
}

fn tokens(expression: &str) -> Result<Vec<Token>, String> {
    let mut rest = expression.chars().peekable();
    let mut all = Vec::new();
    while let Some(c) = rest.next() {
        match c {
            ' ' | '\n' | '\t' => {}
            '#' => while rest.next().is_some_and(|c| c != '\n') {},
            '"' | '\'' => all.push(Token::Text(text(&mut rest, c)?)),
            // These characters begin numbers, durations, and variables of Grafana.
            '0'..='9' | '.' | '$' => {
                let word = with_rest(c, &mut rest, |c| c == '.' || is_of_name(c));
                all.push(Token::Other(word));
            }
            c if is_of_name(c) => all.push(Token::Word(with_rest(c, &mut rest, is_of_name))),
            '=' | '!' | '<' | '>' => {
                let sign = match rest.next_if(|next| matches!(next, '=' | '~')) {
                    Some(next) => format!("{c}{next}"),
                    None => c.to_string(),
                };
                all.push(Token::Other(sign));
            }
            c => all.push(Token::Other(c.to_string())),
        }
    }
    Ok(all)
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}

fn with_rest(first: char, rest: &mut Peekable<Chars>, of_it: impl Fn(char) -> bool) -> String {
    let mut word = String::from(first);
    while let Some(c) = rest.next_if(|c| of_it(*c)) {
        word.push(c);
    }
    word
}

fn text(rest: &mut Peekable<Chars>, end: char) -> Result<String, String> {
    let mut text = String::new();
    loop {
        match rest.next() {
            Some(c) if c == end => return Ok(text),
            Some('\\') => text.extend(rest.next()),
            Some(c) => text.push(c),
            None => return Err("a text stays open".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(expression: &str) -> Vec<String> {
        let used = used(expression).unwrap();
        used.selectors.into_iter().map(|one| one.metric).collect()
    }

    #[test]
    fn metrics_labels_and_values_are_found() {
        let read = used(
            "topk(3, sum by (le, a) (rate(x_bucket{b=~\"c|d\", e!=\"}\"}[$__rate_interval]))) # f\n\
             / on (g) group_left sum(y offset 5m) by (h) > bool 0.5 and z",
        )
        .unwrap();
        let names: Vec<&str> = read
            .selectors
            .iter()
            .map(|one| one.metric.as_str())
            .collect();
        assert_eq!(names, ["x_bucket", "y", "z"]);
        assert_eq!(read.labels, ["le", "a", "g", "h"]);
        let first = &read.selectors[0].matchers;
        assert_eq!(
            (first[0].label.as_str(), first[0].value.as_str()),
            ("b", "c|d")
        );
        assert_eq!(
            (first[1].how.as_str(), first[1].value.as_str()),
            ("!=", "}")
        );
        let of_grafana = used("label_values(x{a=\"b\"}, c)").unwrap();
        assert_eq!(of_grafana.labels, ["c"]);
        assert_eq!(metrics("a:b:c5m > 14.4 * 0.01 or vector(0)"), ["a:b:c5m"]);
    }

    #[test]
    fn open_brackets_are_errors() {
        for wrong in [
            "sum(x",
            "x)",
            "x{a=\"b\"",
            "x[5m",
            "{a=\"b\"}",
            "x{a}",
            "by (\"a\")",
            "\"a",
        ] {
            assert!(used(wrong).is_err(), "{wrong}");
        }
    }
}

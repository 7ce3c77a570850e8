//! Finds the metrics, labels and compared values of a PromQL expression, without parsing it
//! completely. Complete validation is left to promtool.

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
    pub operator: String,
    pub value: String,
}

/// The metrics and labels of one expression.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    pub selectors: Vec<Selector>,
    /// Labels after `by`, `on` and similar keywords.
    pub labels: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    /// A name or a keyword.
    Word(String),
    /// A string literal, without its quotes.
    Text(String),
    /// An operator, a bracket, a number or a variable.
    Other(String),
}

/// Words that are followed by labels in parentheses.
const LABEL_LIST_KEYWORDS: [&str; 6] = [
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
];
const OPERATORS: [&str; 6] = ["and", "or", "unless", "bool", "offset", "atan2"];

/// Returns the metrics and labels of an expression.
///
/// # Errors
/// If a bracket stays open, or a token is not allowed at its place.
pub fn parse_usage(expression: &str) -> Result<Usage, String> {
    let mut parser = Parser {
        tokens: tokenize(expression)?,
        position: 0,
        usage: Usage::default(),
    };
    parser.parse()?;
    Ok(parser.usage)
}

struct Parser {
    tokens: Vec<Token>,
    position: usize,
    usage: Usage,
}

impl Parser {
    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.position).cloned();
        self.position += 1;
        token
    }

    fn next_is(&self, expected: &str) -> bool {
        matches!(self.tokens.get(self.position), Some(Token::Other(sign)) if sign == expected)
    }

    fn parse(&mut self) -> Result<(), String> {
        let mut open = 0_usize;
        while let Some(token) = self.next() {
            match token {
                Token::Other(sign) if sign == "(" => open += 1,
                Token::Other(sign) if sign == ")" => {
                    open = open
                        .checked_sub(1)
                        .ok_or("a parenthesis closes that was not open")?;
                }
                Token::Other(sign) if sign == "[" => self.skip_to("]")?,
                Token::Other(sign) if sign == "{" => return Err("series without a metric".into()),
                Token::Word(word) => self.parse_word(&word)?,
                Token::Other(_) | Token::Text(_) => {}
            }
        }
        if open == 0 {
            Ok(())
        } else {
            Err("a parenthesis stays open".into())
        }
    }

    /// Parses the rest after a word, which is a keyword, a function or a metric.
    fn parse_word(&mut self, word: &str) -> Result<(), String> {
        let lower = word.to_ascii_lowercase();
        if OPERATORS.contains(&lower.as_str()) {
            return Ok(());
        }
        let before_parenthesis = self.next_is("(");
        if LABEL_LIST_KEYWORDS.contains(&lower.as_str()) {
            return if before_parenthesis {
                self.parse_labels()
            } else {
                Ok(())
            };
        }
        if lower == "label_values" && before_parenthesis {
            // This function of Grafana has a metric, and the label whose values it lists.
            self.position += 1;
            return self.parse_label_values();
        }
        // A word before a parenthesis or a grouping is a function. Any other word is a metric.
        let before_grouping = matches!(self.tokens.get(self.position), Some(Token::Word(next))
            if ["by", "without"].contains(&next.to_ascii_lowercase().as_str()));
        if !before_parenthesis && !before_grouping {
            self.parse_selector(word)?;
        }
        Ok(())
    }

    fn parse_label_values(&mut self) -> Result<(), String> {
        let Some(Token::Word(metric)) = self.next() else {
            return Err("label_values names no metric".into());
        };
        self.parse_selector(&metric)?;
        match (self.next(), self.next(), self.next()) {
            (Some(_), Some(Token::Word(label)), Some(Token::Other(end))) if end == ")" => {
                self.usage.labels.push(label);
                Ok(())
            }
            _ => Err("label_values names no label".into()),
        }
    }

    fn parse_labels(&mut self) -> Result<(), String> {
        self.position += 1;
        loop {
            match self.next() {
                Some(Token::Word(label)) => self.usage.labels.push(label),
                Some(Token::Other(sign)) if sign == "," => {}
                Some(Token::Other(sign)) if sign == ")" => return Ok(()),
                other => return Err(format!("no label: {other:?}")),
            }
        }
    }

    fn parse_selector(&mut self, metric: &str) -> Result<(), String> {
        let mut matchers = Vec::new();
        if self.next_is("{") {
            self.position += 1;
            while !self.next_is("}") {
                if self.next_is(",") {
                    self.position += 1;
                    continue;
                }
                match (self.next(), self.next(), self.next()) {
                    (
                        Some(Token::Word(label)),
                        Some(Token::Other(operator)),
                        Some(Token::Text(value)),
                    ) => matchers.push(Matcher {
                        label,
                        operator,
                        value,
                    }),
                    other => return Err(format!("no matcher of {metric}: {other:?}")),
                }
            }
            self.position += 1;
        }
        self.usage.selectors.push(Selector {
            metric: metric.to_owned(),
            matchers,
        });
        Ok(())
    }

    fn skip_to(&mut self, end: &str) -> Result<(), String> {
        while let Some(token) = self.next() {
            if token == Token::Other(end.to_owned()) {
                return Ok(());
            }
        }
        Err(format!("{end} is missing"))
    }
}

fn tokenize(expression: &str) -> Result<Vec<Token>, String> {
    let mut chars = expression.chars().peekable();
    let mut tokens = Vec::new();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\n' | '\t' => {}
            '#' => while chars.next().is_some_and(|c| c != '\n') {},
            '"' | '\'' => tokens.push(Token::Text(read_string(&mut chars, c)?)),
            // These characters begin numbers, durations, and variables of Grafana.
            '0'..='9' | '.' | '$' => {
                let word = take_while(c, &mut chars, |c| c == '.' || is_name_char(c));
                tokens.push(Token::Other(word));
            }
            c if is_name_char(c) => {
                tokens.push(Token::Word(take_while(c, &mut chars, is_name_char)));
            }
            '=' | '!' | '<' | '>' => {
                let sign = match chars.next_if(|next| matches!(next, '=' | '~')) {
                    Some(next) => format!("{c}{next}"),
                    None => c.to_string(),
                };
                tokens.push(Token::Other(sign));
            }
            c => tokens.push(Token::Other(c.to_string())),
        }
    }
    Ok(tokens)
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}

fn take_while(first: char, chars: &mut Peekable<Chars>, belongs: impl Fn(char) -> bool) -> String {
    let mut word = String::from(first);
    while let Some(c) = chars.next_if(|c| belongs(*c)) {
        word.push(c);
    }
    word
}

fn read_string(chars: &mut Peekable<Chars>, end: char) -> Result<String, String> {
    let mut text = String::new();
    loop {
        match chars.next() {
            Some(c) if c == end => return Ok(text),
            Some('\\') => text.extend(chars.next()),
            Some(c) => text.push(c),
            None => return Err("a text stays open".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(expression: &str) -> Vec<String> {
        let usage = parse_usage(expression).unwrap();
        usage
            .selectors
            .into_iter()
            .map(|selector| selector.metric)
            .collect()
    }

    #[test]
    fn metrics_labels_and_values_are_found() {
        let usage = parse_usage(
            "topk(3, sum by (le, a) (rate(x_bucket{b=~\"c|d\", e!=\"}\"}[$__rate_interval]))) # f\n\
             / on (g) group_left sum(y offset 5m) by (h) > bool 0.5 and z",
        )
        .unwrap();
        let names: Vec<&str> = usage
            .selectors
            .iter()
            .map(|selector| selector.metric.as_str())
            .collect();
        assert_eq!(names, ["x_bucket", "y", "z"]);
        assert_eq!(usage.labels, ["le", "a", "g", "h"]);
        let first = &usage.selectors[0].matchers;
        assert_eq!(
            (first[0].label.as_str(), first[0].value.as_str()),
            ("b", "c|d")
        );
        assert_eq!(
            (first[1].operator.as_str(), first[1].value.as_str()),
            ("!=", "}")
        );
        let grafana_usage = parse_usage("label_values(x{a=\"b\"}, c)").unwrap();
        assert_eq!(grafana_usage.labels, ["c"]);
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
            assert!(parse_usage(wrong).is_err(), "{wrong}");
        }
    }
}

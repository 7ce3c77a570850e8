//! Parses stanzas: `Word NAME [PARENT] { key [=] value … }`.
//!
//! Pairs end at the end of a line or with `;`. A `#` at the start of a word starts a comment, and
//! commas are blanks. A fault is reported with its line, and parsing continues after it.

use std::collections::BTreeMap;

use super::{FileFault, Source};

/// Word at the start of a stanza.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StanzaKind {
    Nodepool,
    Class,
    User,
}

impl StanzaKind {
    pub const ALL: [Self; 3] = [Self::Nodepool, Self::Class, Self::User];

    pub fn from_keyword(word: &str) -> Option<Self> {
        match word {
            "Nodepool" | "NodePool" => Some(Self::Nodepool),
            "Class" => Some(Self::Class),
            "User" => Some(Self::User),
            _ => None,
        }
    }

    /// Returns the section of the policy document for these stanzas.
    pub fn section(self) -> &'static str {
        match self {
            Self::Nodepool => "pools",
            Self::Class => "classes",
            Self::User => "users",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stanza {
    pub file: String,
    pub line: usize,
    pub kind: StanzaKind,
    pub name: String,
    /// The word between the name and `{`. `None` if there is no such word.
    pub parent: Option<String>,
    /// Line and values of each key. There is at least one value.
    pub pairs: BTreeMap<String, (usize, Vec<String>)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    Open,
    Close,
    /// End of a pair: end of line or `;`.
    End,
    Equals,
}

/// Returns the tokens of a file with their line numbers.
fn tokenize(text: &str) -> Vec<(usize, Token)> {
    let mut tokens = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let mut word = String::new();
        let flush = |word: &mut String, tokens: &mut Vec<(usize, Token)>| {
            if !word.is_empty() {
                tokens.push((number, Token::Word(std::mem::take(word))));
            }
        };
        for character in line.chars() {
            let token = match character {
                '#' if word.is_empty() => break,
                '{' => Some(Token::Open),
                '}' => Some(Token::Close),
                ';' => Some(Token::End),
                '=' => Some(Token::Equals),
                _ => None,
            };
            if token.is_some() || character.is_whitespace() || character == ',' {
                flush(&mut word, &mut tokens);
            } else {
                word.push(character);
            }
            tokens.extend(token.map(|token| (number, token)));
        }
        flush(&mut word, &mut tokens);
        tokens.push((number, Token::End));
    }
    tokens
}

struct Parser<'a> {
    file: &'a str,
    tokens: Vec<(usize, Token)>,
    position: usize,
    stanzas: Vec<Stanza>,
    faults: Vec<FileFault>,
}

pub(super) fn parse(source: Source<'_>) -> (Vec<Stanza>, Vec<FileFault>) {
    let mut parser = Parser {
        file: source.name,
        tokens: tokenize(source.text),
        position: 0,
        stanzas: Vec::new(),
        faults: Vec::new(),
    };
    while parser.peek().is_some() {
        parser.parse_stanza();
    }
    (parser.stanzas, parser.faults)
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.position).map(|(_, token)| token)
    }

    fn next(&mut self) -> Option<(usize, Token)> {
        let token = self.tokens.get(self.position).cloned();
        self.position += 1;
        token
    }

    fn add_fault(&mut self, line: usize, detail: String) {
        self.faults.push(FileFault {
            file: self.file.to_owned(),
            line: Some(line),
            detail,
        });
    }

    /// Parses one stanza. A stanza without a name or a known first word is reported and skipped.
    fn parse_stanza(&mut self) {
        let Some((line, token)) = self.next() else {
            return;
        };
        let word = match token {
            Token::End => return,
            Token::Word(word) => word,
            other => {
                return self.add_fault(
                    line,
                    format!("{} is outside of a stanza", token_text(&other)),
                );
            }
        };
        let kind = StanzaKind::from_keyword(&word);
        if kind.is_none() {
            let detail = format!("{word:?} starts no stanza: use Nodepool, Class or User");
            self.add_fault(line, detail);
        }
        let header = self.take_words();
        if !self.take_open() {
            self.add_fault(line, format!("{word} {} has no {{", header.join(" ")));
            return;
        }
        let pairs = self.parse_body(line, &word);
        let mut header = header.into_iter();
        let (Some(kind), name) = (kind, header.next()) else {
            return;
        };
        let Some(name) = name else {
            self.add_fault(line, format!("{word} has no name"));
            return;
        };
        let parent = header.next();
        if let Some(extra) = header.next() {
            self.add_fault(
                line,
                format!("{word} {name}: {extra:?} is an extra word before {{"),
            );
        }
        self.stanzas.push(Stanza {
            file: self.file.to_owned(),
            line,
            kind,
            name,
            parent,
            pairs,
        });
    }

    /// Returns the words of a header, up to the end of the line or `{`.
    fn take_words(&mut self) -> Vec<String> {
        let mut words = Vec::new();
        while let Some(Token::Word(word)) = self.peek() {
            words.push(word.clone());
            self.position += 1;
        }
        words
    }

    /// Consumes the `{` on the line of the header or on a later line. Returns false if another
    /// token comes first.
    fn take_open(&mut self) -> bool {
        let upcoming = self.tokens[self.position.min(self.tokens.len())..].iter();
        let skipped = upcoming
            .take_while(|(_, token)| *token == Token::End)
            .count();
        let is_open = matches!(
            self.tokens.get(self.position + skipped),
            Some((_, Token::Open))
        );
        if is_open {
            self.position += skipped + 1;
        }
        is_open
    }

    fn parse_body(
        &mut self,
        first_line: usize,
        word: &str,
    ) -> BTreeMap<String, (usize, Vec<String>)> {
        let mut pairs = BTreeMap::new();
        loop {
            let start = self.position;
            match self.next() {
                Some((_, Token::End)) => {}
                Some((_, Token::Close)) => return pairs,
                // The next stanza starts, so this stanza was not closed.
                Some((_, Token::Word(key))) if StanzaKind::from_keyword(&key).is_some() => {
                    self.position = start;
                    break;
                }
                Some((line, Token::Word(key))) => self.parse_pair(line, key, &mut pairs),
                Some((line, other)) => {
                    self.add_fault(line, format!("{} starts no pair", token_text(&other)));
                }
                None => break,
            }
        }
        self.add_fault(first_line, format!("{word} has no }}"));
        pairs
    }

    /// Parses a pair of key and values. A key has a value and appears once.
    fn parse_pair(
        &mut self,
        line: usize,
        key: String,
        pairs: &mut BTreeMap<String, (usize, Vec<String>)>,
    ) {
        if self.peek() == Some(&Token::Equals) {
            self.position += 1;
        }
        let values = self.take_words();
        if self.peek() == Some(&Token::Equals) {
            self.add_fault(
                line,
                format!("{key}: a second = in one pair; pairs end with ;"),
            );
            self.position += 1;
            self.take_words();
        }
        if values.is_empty() {
            self.add_fault(line, format!("{key} has no value"));
        } else if let Some((first, _)) = pairs.get(&key) {
            let detail = format!("{key} appears twice in this stanza, first in line {first}");
            self.add_fault(line, detail);
        } else {
            pairs.insert(key, (line, values));
        }
    }
}

fn token_text(token: &Token) -> &'static str {
    match token {
        Token::Open => "{",
        Token::Close => "}",
        Token::End => ";",
        Token::Equals => "=",
        Token::Word(_) => "a word",
    }
}

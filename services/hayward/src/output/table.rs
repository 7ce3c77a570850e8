//! Formats tables without lines. Blanks separate the columns, for people and for `awk`. Colours are
//! added after the columns are measured.

use tabled::builder::Builder;
use tabled::settings::object::{Columns, Rows};
use tabled::settings::{Alignment, Color, Padding, Style};

use super::Renderer;
use super::format::sanitize;

/// Severity of a cell, shown as its colour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tone {
    #[default]
    Plain,
    Good,
    Bad,
    Warning,
    Faint,
}

impl Tone {
    fn colour(self) -> Option<Color> {
        match self {
            Self::Plain => None,
            Self::Good => Some(Color::FG_GREEN),
            Self::Bad => Some(Color::FG_RED),
            Self::Warning => Some(Color::FG_YELLOW),
            Self::Faint => Some(Color::FG_BRIGHT_BLACK),
        }
    }
}

/// Text of a table cell, without control characters.
#[derive(Debug, Clone)]
pub struct Cell {
    text: String,
    tone: Tone,
}

impl<T: std::fmt::Display> From<T> for Cell {
    fn from(text: T) -> Self {
        Self {
            text: sanitize(&text.to_string()),
            tone: Tone::Plain,
        }
    }
}

impl Cell {
    pub fn has_text(&self, text: &str) -> bool {
        self.text == text
    }
}

/// Returns a cell with a colour.
pub fn toned(text: impl std::fmt::Display, tone: Tone) -> Cell {
    Cell {
        tone,
        ..Cell::from(text)
    }
}

/// A table with `N` columns.
#[derive(Debug)]
pub struct Table<const N: usize> {
    header: [&'static str; N],
    rows: Vec<[Cell; N]>,
    right_aligned: Vec<usize>,
}

impl<const N: usize> Table<N> {
    pub fn new(header: [&'static str; N]) -> Self {
        Self {
            header,
            rows: Vec::new(),
            right_aligned: Vec::new(),
        }
    }

    /// Aligns these columns to the right, so that their units are below each other.
    #[must_use]
    pub fn align_right(mut self, columns: &[usize]) -> Self {
        self.right_aligned = columns.to_vec();
        self
    }

    pub fn push_row(&mut self, cells: [Cell; N]) {
        self.rows.push(cells);
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the table as text. It ends with a line break, and lines have no trailing blanks.
    pub fn render(&self, renderer: &Renderer) -> String {
        let mut builder = Builder::default();
        builder.push_record(self.header);
        for row in &self.rows {
            builder.push_record(row.iter().map(|cell| cell.text.as_str()));
        }
        let mut table = builder.build();
        table.with(Style::blank()).with(Padding::new(0, 1, 0, 0));
        for column in &self.right_aligned {
            table.modify(Columns::one(*column), Alignment::right());
        }
        if renderer.colour {
            table.modify(Rows::first(), Color::BOLD);
            for (row_index, row) in self.rows.iter().enumerate() {
                for (column, cell) in row.iter().enumerate() {
                    if let Some(colour) = cell.tone.colour() {
                        table.modify((row_index + 1, column), colour);
                    }
                }
            }
        }
        table
            .to_string()
            .lines()
            .fold(String::new(), |text, line| text + line.trim_end() + "\n")
    }
}

/// Names and values, one pair for each line.
#[derive(Debug, Default)]
pub struct Facts(Vec<(&'static str, Cell)>);

impl Facts {
    pub fn add(&mut self, name: &'static str, value: impl Into<Cell>) {
        self.0.push((name, value.into()));
    }

    pub fn render(&self, renderer: &Renderer) -> String {
        let width = self.0.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let lines = self.0.iter().map(|(name, cell)| {
            let value = renderer.paint(&cell.text, cell.tone);
            format!("{name:<width$}  {value}").trim_end().to_owned() + "\n"
        });
        lines.collect()
    }
}

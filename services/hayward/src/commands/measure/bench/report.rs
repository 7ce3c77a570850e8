//! The final table: figure, baseline of the same run, ratio.

use tabled::builder::Builder;
use tabled::settings::Style;

pub struct Report {
    lines: Vec<[String; 4]>,
}

impl Report {
    pub fn new() -> Self {
        Self { lines: Vec::new() }
    }

    /// Adds a rate or a time without a baseline.
    pub fn figure(&mut self, what: &str, value: String) {
        self.push(what, value, String::new(), String::new());
    }

    /// Adds two rates of one run. The ratio is the first over the second.
    pub fn rates(&mut self, what: &str, (rate, baseline): (f64, f64), unit: &str, against: &str) {
        let ratio = if baseline > 0.0 {
            format!("{:.2}", rate / baseline)
        } else {
            "–".into()
        };
        let text = format!("{baseline:.0} {unit} {against}");
        self.push(what, format!("{rate:.0} {unit}"), text, ratio);
    }

    /// Adds two times of one run, in milliseconds. The ratio is the first over the second.
    pub fn times(&mut self, what: &str, (ms, baseline): (f64, f64), against: &str) {
        let text = format!("{baseline:.1} ms {against}");
        let ratio = format!("{:.1}", ms / baseline.max(0.001));
        self.push(what, format!("{ms:.1} ms"), text, ratio);
    }

    fn push(&mut self, what: &str, value: String, baseline: String, ratio: String) {
        println!("{what}: {value} {baseline}");
        self.lines.push([what.to_owned(), value, baseline, ratio]);
    }

    pub fn print(&self) {
        let mut table = Builder::new();
        table.push_record(["measured", "Hayward", "baseline in the same run", "ratio"]);
        for line in &self.lines {
            table.push_record(line);
        }
        let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
        println!("\n{cores} cores, one local Postgres with fsync on, everything on this machine");
        println!("{}", table.build().with(Style::rounded()));
    }
}

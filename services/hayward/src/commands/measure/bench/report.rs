//! The table at the end: figure, baseline of the same run, ratio.

use tabled::builder::Builder;
use tabled::settings::Style;

pub struct Report {
    lines: Vec<[String; 4]>,
}

impl Report {
    pub fn new() -> Self {
        Self { lines: Vec::new() }
    }

    /// A rate or a time with nothing to compare it to.
    pub fn figure(&mut self, what: &str, value: String) {
        self.push(what, value, String::new(), String::new());
    }

    /// Two rates of one run; the ratio is the first over the second.
    pub fn rates(&mut self, what: &str, (rate, baseline): (f64, f64), unit: &str, against: &str) {
        let ratio = if baseline > 0.0 {
            format!("{:.2}", rate / baseline)
        } else {
            "–".into()
        };
        let told = format!("{baseline:.0} {unit} {against}");
        self.push(what, format!("{rate:.0} {unit}"), told, ratio);
    }

    /// Two times of one run, in milliseconds; the ratio is the first over the second.
    pub fn times(&mut self, what: &str, (ms, baseline): (f64, f64), against: &str) {
        let told = format!("{baseline:.1} ms {against}");
        let ratio = format!("{:.1}", ms / baseline.max(0.001));
        self.push(what, format!("{ms:.1} ms"), told, ratio);
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

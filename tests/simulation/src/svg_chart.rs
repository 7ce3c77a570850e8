//! Charts as SVG text: a frame, axes with units, lines, stacked areas, and a legend. Equal values
//! give equal text. People with colour vision deficiency can distinguish the colours.

use std::fmt::Write as _;

// Size of the image, and the margins around the frame, in pixels. The legend is in the right
// margin.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 46.0;
const BOTTOM: f64 = 56.0;

/// The palette of Okabe and Ito. The last colour marks the remainder.
pub const COLOURS: [&str; 9] = [
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#f0e442", "#5d3a9b",
    "#bbbbbb",
];

/// An axis of a chart: its label with the unit, and the positions of its ticks.
#[derive(Debug, Clone)]
pub struct Axis {
    pub label: String,
    pub max: f64,
    /// Positions with their labels.
    pub ticks: Vec<(f64, String)>,
}

impl Axis {
    /// Creates an axis from 0 to `max` with ticks at round numbers.
    pub fn linear(label: impl Into<String>, max: f64) -> Self {
        let max = if max > 0.0 { max } else { 1.0 };
        let step = round_step(max / 8.0);
        let ticks = (0_u32..)
            .map(|count| f64::from(count) * step)
            .take_while(|value| *value <= max * 1.000_001)
            .map(|value| (value, format_number(value)));
        Self {
            label: label.into(),
            max,
            ticks: ticks.collect(),
        }
    }
}

/// Returns the smallest of the numbers 1, 2, 5, 10, … that is not below `minimum`.
fn round_step(minimum: f64) -> f64 {
    let power = 10_f64.powf(minimum.log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|factor| factor * power);
    steps
        .into_iter()
        .find(|step| *step >= minimum * 0.999_999)
        .unwrap_or(10.0 * power)
}

fn format_number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[derive(Debug)]
pub struct Chart {
    x: Axis,
    y: Axis,
    /// Lines and areas as SVG text.
    body: String,
    legend: Vec<(String, &'static str)>,
    title: String,
}

impl Chart {
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self {
            x,
            y,
            body: String::new(),
            legend: Vec::new(),
            title: title.into(),
        }
    }

    fn to_pixels(&self, x: f64, y: f64) -> (f64, f64) {
        let across = (x / self.x.max).clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT);
        let up = (y / self.y.max).clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM);
        (LEFT + across, HEIGHT - BOTTOM - up)
    }

    fn path(&self, points: impl Iterator<Item = (f64, f64)>) -> String {
        let mut path = String::new();
        for (index, (x, y)) in points.enumerate() {
            let (x, y) = self.to_pixels(x, y);
            let letter = if index == 0 { 'M' } else { 'L' };
            write(&mut path, format_args!("{letter}{x:.1} {y:.1}"));
        }
        path
    }

    pub fn draw_line(&mut self, name: &str, points: &[(f64, f64)], colour: &'static str) {
        let path = self.path(points.iter().copied());
        write(
            &mut self.body,
            format_args!(
                "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\"/>\n"
            ),
        );
        self.legend.push((name.to_owned(), colour));
    }

    /// Fills the area between two lines. Each edge is a position with its low and its high value.
    pub fn draw_area(&mut self, name: &str, edges: &[(f64, f64, f64)], colour: &'static str) {
        let upper = edges.iter().map(|(x, _, high)| (*x, *high));
        let lower = edges.iter().rev().map(|(x, low, _)| (*x, *low));
        let path = self.path(upper.chain(lower));
        write(
            &mut self.body,
            format_args!("<path d=\"{path}Z\" fill=\"{colour}\" fill-opacity=\"0.9\"/>\n"),
        );
        self.legend.push((name.to_owned(), colour));
    }

    pub fn to_svg(&self) -> String {
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"13\" role=\"img\">\n\
             <title>{title}</title>\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
             <text x=\"{LEFT}\" y=\"26\" font-size=\"16\" font-weight=\"bold\">{title}</text>\n",
            title = escape_xml(&self.title)
        );
        self.write_grid(&mut svg);
        svg.push_str(&self.body);
        self.write_axes(&mut svg);
        self.write_legend(&mut svg);
        svg.push_str("</svg>\n");
        svg
    }

    fn write_grid(&self, svg: &mut String) {
        for (value, _) in &self.y.ticks {
            let (_, y) = self.to_pixels(0.0, *value);
            let right = WIDTH - RIGHT;
            write(
                svg,
                format_args!("<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#dddddd\"/>\n"),
            );
        }
    }

    fn write_axes(&self, svg: &mut String) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        write(
            svg,
            format_args!(
                "<path d=\"M{LEFT} {TOP}V{bottom}H{right}\" fill=\"none\" stroke=\"#333333\"/>\n"
            ),
        );
        for (value, text) in &self.x.ticks {
            let (x, _) = self.to_pixels(*value, 0.0);
            let (end, below) = (bottom + 5.0, bottom + 20.0);
            write(
                svg,
                format_args!(
                    "<path d=\"M{x:.1} {bottom}V{end}\" stroke=\"#333333\"/>\
                     <text x=\"{x:.1}\" y=\"{below}\" text-anchor=\"middle\">{}</text>\n",
                    escape_xml(text)
                ),
            );
        }
        for (value, text) in &self.y.ticks {
            let (_, y) = self.to_pixels(0.0, *value);
            let (x, y) = (LEFT - 8.0, y + 4.0);
            write(
                svg,
                format_args!(
                    "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{}</text>\n",
                    escape_xml(text)
                ),
            );
        }
        let (middle, low) = (f64::midpoint(LEFT, right), HEIGHT - 14.0);
        let centre = f64::midpoint(TOP, bottom);
        write(
            svg,
            format_args!(
                "<text x=\"{middle}\" y=\"{low}\" text-anchor=\"middle\">{}</text>\n\
                 <text transform=\"translate(18 {centre}) rotate(-90)\" \
                 text-anchor=\"middle\">{}</text>\n",
                escape_xml(&self.x.label),
                escape_xml(&self.y.label)
            ),
        );
    }

    fn write_legend(&self, svg: &mut String) {
        let x = WIDTH - RIGHT + 16.0;
        let mut y = TOP + 4.0;
        for (name, colour) in &self.legend {
            let (text_x, text_y) = (x + 18.0, y + 11.0);
            write(
                svg,
                format_args!(
                    "<rect x=\"{x}\" y=\"{y}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\
                     <text x=\"{text_x}\" y=\"{text_y}\">{}</text>\n",
                    escape_xml(name)
                ),
            );
            y += 20.0;
        }
    }
}

fn write(text: &mut String, arguments: std::fmt::Arguments) {
    text.write_fmt(arguments).expect("a string takes text");
}

fn escape_xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            control if control.is_control() => escaped.push(' '),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_at_round_numbers() {
        let texts = |max| {
            let ticks = Axis::linear("days", max).ticks;
            ticks.into_iter().map(|(_, text)| text).collect::<Vec<_>>()
        };
        assert_eq!(texts(100.0), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!(
            texts(0.4),
            [
                "0", "0.05", "0.1", "0.15", "0.2", "0.25", "0.3", "0.35", "0.4"
            ]
        );
        assert!(texts(89.05).len() < 10);
    }

    #[test]
    fn a_chart_contains_its_labels_and_lines() {
        let mut chart = Chart::new("a < b", Axis::linear("days", 2.0), Axis::linear("%", 100.0));
        chart.draw_line("u&1", &[(0.0, 0.0), (2.0, 100.0), (9.0, 900.0)], COLOURS[0]);
        chart.draw_area("u2", &[(0.0, 0.0, 50.0), (2.0, 50.0, 100.0)], COLOURS[1]);
        let svg = chart.to_svg();
        for wanted in [
            "a &lt; b",
            ">days<",
            ">%<",
            ">u&amp;1<",
            "M70.0 424.0L790.0 46.0L790.0 46.0",
        ] {
            assert!(svg.contains(wanted), "{wanted}\n{svg}");
        }
        assert_eq!(svg, chart.to_svg());
    }
}

//! Charts of growth: the time of one call over the size of what it looks at.
//!
//! In: lines of sizes and times. Out: an SVG document. Both axes are logarithmic, so a straight line is a power of the
//! size.

use std::fmt::Write as _;

/// Room for the texts of an axis.
const LEFT: f64 = 70.0;
/// From one panel to the next.
const PITCH: f64 = 480.0;
const HEIGHT: f64 = 420.0;
const TOP: f64 = 70.0;
const PANEL_HEIGHT: f64 = 290.0;
const PANEL_WIDTH: f64 = 380.0;
/// Colours that people with colour-blindness can tell apart (Okabe and Ito).
const COLOURS: [&str; 4] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7"];
const GREY: &str = "#767676";
const GRID: &str = "#dddddd";

/// One line of a panel: its points are sizes and nanoseconds.
pub(super) struct Line {
    pub(super) name: &'static str,
    pub(super) points: Vec<(u32, f64)>,
}

/// A panel: sizes from left to right, times from bottom to top, in powers of ten of nanoseconds.
pub(super) struct Panel {
    pub(super) title: &'static str,
    pub(super) unit: &'static str,
    pub(super) powers: (u32, u32),
    pub(super) lines: Vec<Line>,
}

/// Draws panels beside each other.
pub(super) fn svg(title: &str, panels: &[Panel]) -> String {
    let width = LEFT + PITCH * panels.len() as f64;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {HEIGHT}\" width=\"{width}\" \
         height=\"{HEIGHT}\" font-family=\"Ubuntu, 'Helvetica Neue', Arial, sans-serif\" font-size=\"12\">\n\
         <title>{title}</title>\n\
         <rect width=\"{width}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    for (at, panel) in panels.iter().enumerate() {
        Drawing { left: LEFT + PITCH * at as f64, panel }.draw(&mut out);
    }
    out.push_str("</svg>\n");
    out
}

/// A panel at its place.
struct Drawing<'a> {
    left: f64,
    panel: &'a Panel,
}

impl Drawing<'_> {
    fn draw(&self, out: &mut String) {
        let (left, bottom, right) = (self.left, TOP + PANEL_HEIGHT, self.left + PANEL_WIDTH);
        // Writing to a String cannot fail.
        let _ = writeln!(out, "<text x=\"{left}\" y=\"24\" font-size=\"15\">{}</text>", self.panel.title);
        for power in self.panel.powers.0..=self.panel.powers.1 {
            let y = self.y(10_f64.powi(power.cast_signed()));
            let text = ["1 ns", "10 ns", "100 ns", "1 us", "10 us", "100 us", "1 ms", "10 ms", "100 ms"]
                .get(power as usize);
            let _ = writeln!(
                out,
                "<path d=\"M{left} {y:.1}H{right}\" stroke=\"{GRID}\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"{GREY}\">{}</text>",
                left - 8.0,
                y + 4.0,
                text.unwrap_or(&"")
            );
        }
        for size in self.sizes() {
            let _ = writeln!(
                out,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"{GREY}\">{size} {}</text>",
                self.x(size),
                bottom + 18.0,
                self.panel.unit
            );
        }
        for (at, line) in self.panel.lines.iter().enumerate() {
            let colour = COLOURS[at % COLOURS.len()];
            let path: Vec<String> = line
                .points
                .iter()
                .map(|(size, ns)| format!("{:.1} {:.1}", self.x(*size), self.y(*ns)))
                .collect();
            let y = 40.0 + 14.0 * (at / 2) as f64;
            let x = left + 195.0 * (at % 2) as f64;
            let _ = writeln!(
                out,
                "<path d=\"M{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\"/>\
                 <rect x=\"{x}\" y=\"{:.1}\" width=\"14\" height=\"3\" fill=\"{colour}\"/>\
                 <text x=\"{}\" y=\"{y}\" font-size=\"11\">{}</text>",
                path.join("L"),
                y - 5.0,
                x + 18.0,
                line.name
            );
        }
    }

    /// All sizes, ascending.
    fn sizes(&self) -> Vec<u32> {
        let mut sizes: Vec<u32> =
            self.panel.lines.iter().flat_map(|line| &line.points).map(|(size, _)| *size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    fn x(&self, size: u32) -> f64 {
        let sizes = self.sizes();
        let log = |size: u32| f64::from(size.max(1)).log2();
        let (first, last) = (sizes.first().map_or(0.0, |s| log(*s)), sizes.last().map_or(1.0, |s| log(*s)));
        self.left + PANEL_WIDTH * (log(size) - first) / (last - first).max(1.0)
    }

    fn y(&self, ns: f64) -> f64 {
        let (low, high) = (f64::from(self.panel.powers.0), f64::from(self.panel.powers.1));
        TOP + PANEL_HEIGHT * (1.0 - (ns.max(1.0).log10().clamp(low, high) - low) / (high - low))
    }
}

/// A time for people.
pub(super) fn time(ns: f64) -> String {
    match ns {
        ..1e3 => format!("{ns:.0} ns"),
        ..1e6 => format!("{:.1} us", ns / 1e3),
        _ => format!("{:.1} ms", ns / 1e6),
    }
}

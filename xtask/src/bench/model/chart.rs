//! The chart of growth: time of one call over zones, and over CPUs.
//!
//! In: rows of the benchmark. Out: an SVG document. Both axes are logarithmic, so a straight line is a power of the
//! size.

use std::fmt::Write as _;

use super::Row;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 420.0;
const TOP: f64 = 70.0;
const PANEL_HEIGHT: f64 = 290.0;
const PANEL_WIDTH: f64 = 380.0;
/// Colours that people with colour-blindness can tell apart (Okabe and Ito).
const COLOURS: [&str; 4] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7"];
const GREY: &str = "#767676";
const GRID: &str = "#dddddd";

/// One line of a panel.
struct Line {
    name: &'static str,
    points: Vec<(u32, f64)>,
}

/// A panel: sizes from left to right, times from bottom to top, in powers of ten of nanoseconds.
struct Panel {
    left: f64,
    title: &'static str,
    unit: &'static str,
    powers: (u32, u32),
    lines: Vec<Line>,
}

/// Draws the growth of `fits` with zones and that of `admit` with CPUs and zones.
pub(super) fn svg(rows: &[Row]) -> String {
    let points = |what: &str, policy: &str, pod: &str, of: &dyn Fn(&Row) -> Option<u32>| {
        let wanted = rows.iter().filter(|row| row.what == what && row.policy == policy && row.pod == pod);
        wanted.filter_map(|row| Some((of(row)?, row.ns))).collect::<Vec<_>>()
    };
    let zones = |row: &Row| Some(row.zones);
    let cpus = |row: &Row| (row.zones == 2).then_some(row.cpus);
    let zones_of_512 = |row: &Row| (row.cpus == 512).then_some(row.zones);
    let (single, restricted) = ("single-numa-node", "restricted");
    let line = |name, points| Line { name, points };
    let panels = [
        Panel {
            left: 70.0,
            title: "fits() over zones of 16 CPUs",
            unit: "zones",
            powers: (1, 5),
            lines: vec![
                line("single-numa-node, small pod", points("fits", single, "small", &zones)),
                line("restricted, small pod", points("fits", restricted, "small", &zones)),
                line("restricted, pod of several zones", points("fits", restricted, "several zones", &zones)),
                line("single-numa-node, two containers", points("fits", single, "two containers", &zones)),
            ],
        },
        Panel {
            left: 550.0,
            title: "admit() by CPUs (2 zones) and by zones (512 CPUs)",
            unit: "",
            powers: (3, 6),
            lines: vec![
                line("by CPUs, small pod", points("admit", restricted, "small", &cpus)),
                line("by CPUs, half a zone", points("admit", restricted, "half a zone", &cpus)),
                line("by zones, small pod", points("admit", restricted, "small", &zones_of_512)),
                line("by zones, half a zone", points("admit", restricted, "half a zone", &zones_of_512)),
            ],
        },
    ];
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
         height=\"{HEIGHT}\" font-family=\"Ubuntu, 'Helvetica Neue', Arial, sans-serif\" font-size=\"12\">\n\
         <title>Time of one call of the model of the kubelet</title>\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    panels.iter().for_each(|panel| panel.draw(&mut out));
    out.push_str("</svg>\n");
    out
}

impl Panel {
    fn draw(&self, out: &mut String) {
        let (left, bottom, right) = (self.left, TOP + PANEL_HEIGHT, self.left + PANEL_WIDTH);
        // Writing to a String cannot fail.
        let _ = writeln!(out, "<text x=\"{left}\" y=\"24\" font-size=\"15\">{}</text>", self.title);
        for power in self.powers.0..=self.powers.1 {
            let y = self.y(10_f64.powi(power.cast_signed()));
            let text = ["1 ns", "10 ns", "100 ns", "1 us", "10 us", "100 us", "1 ms"].get(power as usize);
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
                self.unit
            );
        }
        for (at, line) in self.lines.iter().enumerate() {
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
            self.lines.iter().flat_map(|line| &line.points).map(|(size, _)| *size).collect();
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
        let (low, high) = (f64::from(self.powers.0), f64::from(self.powers.1));
        TOP + PANEL_HEIGHT * (1.0 - (ns.max(1.0).log10().clamp(low, high) - low) / (high - low))
    }
}

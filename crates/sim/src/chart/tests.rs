use super::*;
use crate::comparison::{Contender, Impairments};
use crate::machine::Shape;
use crate::workload::OpenArrivals;

fn entries() -> Vec<Outcome> {
    let machines = Shape::even(2, 16).unwrap().machines(4).unwrap();
    let workload = OpenArrivals { pods: 60, ..OpenArrivals::default() }.workload().unwrap();
    let run =
        |contender: Contender| contender.run(&workload, &machines, Impairments::healthy(), 1, &mut |_| {});
    Contender::ALL.into_iter().map(run).collect()
}

#[test]
fn charts_show_every_contender_and_every_loss() {
    let entries = entries();
    let picture = svg(&entries, "60 pods <on> 4 nodes");
    assert!(picture.contains("60 pods &lt;on&gt; 4 nodes"));
    for entry in &entries {
        assert_eq!(picture.matches(&format!(">{}</text>", entry.summary.scheduler)).count(), 2);
    }
    assert!(entries[0].summary.rejected > 0);
    assert!(picture.contains(&format!(">{} of 60</text>", entries[0].summary.rejected)));
    // Two lines per contender.
    assert_eq!(picture.matches("stroke-linejoin").count(), 2 * entries.len());
}

#[test]
fn charts_of_nothing_are_whole() {
    let chart = svg(&[], "");
    assert!(chart.starts_with("<svg ") && chart.ends_with("</svg>\n"), "{chart}");
}

#[test]
fn axes_end_at_round_numbers() {
    for (value, expected) in [(0.0, 0.001), (0.9, 1.0), (1.0, 1.0), (3.0, 4.0), (41.0, 50.0), (81.0, 100.0)] {
        assert!((round_up(value) - expected).abs() < 1e-9, "{value}: {}", round_up(value));
    }
    assert!(round_up(f64::INFINITY).is_finite());
}

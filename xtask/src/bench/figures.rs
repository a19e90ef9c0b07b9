//! Figures in Prometheus' text form.
//!
//! In: the text. Out: sums over labels, and quantiles of histograms. Never: a guess between a histogram's bounds.

/// Samples: a name, its labels as they stand there, a value.
#[derive(Debug)]
pub(super) struct Figures(Vec<(String, String, f64)>);

impl Figures {
    /// Reads the lines that are samples; what else stands there is passed over.
    pub(super) fn parse(text: &str) -> Self {
        let sample = |line: &str| {
            let (head, value) = line.rsplit_once(' ')?;
            let (name, labels) = head.split_once('{').unwrap_or((head, ""));
            let value = value.trim().parse().ok()?;
            Some((name.to_owned(), labels.trim_end_matches('}').to_owned(), value))
        };
        Self(text.lines().filter(|line| !line.starts_with('#')).filter_map(sample).collect())
    }

    /// The value of a sample without labels.
    pub(super) fn value(&self, name: &str) -> Option<f64> {
        let own = self.0.iter().find(|(own, labels, _)| own == name && labels.is_empty());
        own.map(|(_, _, value)| *value)
    }

    /// The sum over all labels.
    pub(super) fn sum(&self, name: &str) -> f64 {
        self.sum_where(name, "")
    }

    /// The sum over samples with this among their labels.
    pub(super) fn sum_where(&self, name: &str, label: &str) -> f64 {
        let own = self.0.iter().filter(|(own, labels, _)| own == name && labels.contains(label));
        own.map(|(_, _, value)| value).sum()
    }

    /// The bound under which this part of all observations is; `None` when there are none, or it is above all bounds.
    pub(super) fn quantile(&self, name: &str, part: f64) -> Option<f64> {
        let total = self.sum(&format!("{name}_count"));
        let mut bounds: Vec<(f64, f64)> = Vec::new();
        for (own, labels, value) in &self.0 {
            if *own != format!("{name}_bucket") {
                continue;
            }
            let bound = labels.split("le=\"").nth(1)?.split('"').next()?.parse().ok()?;
            match bounds.iter_mut().find(|(known, _)| *known == bound) {
                Some((_, sum)) => *sum += value,
                None => bounds.push((bound, *value)),
            }
        }
        bounds.sort_by(|a, b| a.0.total_cmp(&b.0));
        let reached = bounds.into_iter().find(|(_, below)| total > 0.0 && *below >= part * total)?.0;
        reached.is_finite().then_some(reached)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_quantiles() {
        let figures = Figures::parse(
            "HTTP/1.1 200 OK\n# TYPE a counter\na_total{x=\"1\",y=\"2\"} 3\na_total{x=\"2\"} 4\nb 1.5\n\
             t_bucket{le=\"0.1\",c=\"x\"} 1\nt_bucket{le=\"0.2\",c=\"x\"} 2\nt_bucket{le=\"+Inf\",c=\"x\"} 2\nt_count{c=\"x\"} 2\n\
             t_bucket{le=\"0.1\",c=\"y\"} 1\nt_bucket{le=\"0.2\",c=\"y\"} 1\nt_bucket{le=\"+Inf\",c=\"y\"} 2\nt_count{c=\"y\"} 2\n",
        );
        assert_eq!((figures.sum("a_total"), figures.sum_where("a_total", "y=\"2\"")), (7.0, 3.0));
        assert_eq!((figures.sum("b"), figures.sum("c")), (1.5, 0.0));
        assert_eq!((figures.value("b"), figures.value("a_total")), (Some(1.5), None));
        let quantiles = [0.5, 0.75, 0.99].map(|part| figures.quantile("t", part));
        assert_eq!(quantiles, [Some(0.1), Some(0.2), None]);
        assert_eq!(figures.quantile("none", 0.5), None);
    }
}

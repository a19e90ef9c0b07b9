//! Metrics in the format that the scraper accepts.
//!
//! In: a registry and the `Accept` header. Out: OpenMetrics for scrapers that ask for it by name (Prometheus does),
//! else Prometheus' plain text, which Go programs send and `curl` and simple scrapers expect. Never: different samples
//! in the two formats.

use axum::http::{HeaderMap, header::ACCEPT};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

/// The format of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    OpenMetrics,
    Plain,
}

impl Format {
    /// The format with the higher quality value; plain text without an `Accept` header.
    pub(super) fn accepted(headers: &HeaderMap) -> Self {
        let (mut open, mut plain) = (0.0, 0.0);
        let headers = headers.get_all(ACCEPT).into_iter().filter_map(|value| value.to_str().ok());
        for range in headers.flat_map(|value| value.split(',')) {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
            let quality = parts.find_map(|part| part.strip_prefix("q=")).map_or(Ok(1.0), str::parse::<f32>);
            let Ok(quality) = quality else { continue };
            match kind.as_str() {
                "application/openmetrics-text" => open = quality.max(open),
                "text/plain" | "text/*" | "*/*" => plain = quality.max(plain),
                _ => {}
            }
        }
        if open > 0.0 && open >= plain { Self::OpenMetrics } else { Self::Plain }
    }

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Plain => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    pub(super) fn text(self, registry: &Registry) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, registry)?;
        Ok(match self {
            Self::OpenMetrics => text,
            Self::Plain => plain(&text),
        })
    }
}

/// Turns OpenMetrics into Prometheus' plain text. There a family has the name of its samples, so a counter's ends in
/// `_total`; units and the end mark do not exist.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    // Help comes before the type, which decides the name.
    let mut help = "";
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        let (mark, word, name) = (words.next(), words.next(), words.next().unwrap_or_default());
        let rest = words.next().unwrap_or_default();
        match (mark, word) {
            (Some("#"), Some("EOF" | "UNIT")) => {}
            (Some("#"), Some("HELP")) => help = rest,
            (Some("#"), Some("TYPE")) => {
                let (suffix, kind) = match rest {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    "unknown" => ("", "untyped"),
                    other => ("", other),
                };
                for (word, rest) in [("HELP", help), ("TYPE", kind)] {
                    plain.extend(["# ", word, " ", name, suffix, " ", rest, "\n"]);
                }
            }
            _ => plain.extend([line, "\n"]),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::family::Family;
    use prometheus_client::metrics::gauge::Gauge;
    use prometheus_client::metrics::histogram::Histogram;
    use prometheus_client::metrics::info::Info;
    use prometheus_client::registry::Unit;

    #[test]
    fn scrapers_get_what_they_accept() {
        // Prometheus 2 by default, and with a configuration that prefers the older format.
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                          text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let older =
            "text/plain;version=0.0.4;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.2";
        let table: &[(&[&str], Format)] = &[
            (&[], Format::Plain),
            (&["*/*"], Format::Plain),
            (&["text/plain"], Format::Plain),
            (&["text/html, application/xml;q=0.9, */*;q=0.8"], Format::Plain),
            (&[prometheus], Format::OpenMetrics),
            (&[older], Format::Plain),
            (&["Application/OpenMetrics-Text"], Format::OpenMetrics),
            (&["text/plain", "application/openmetrics-text"], Format::OpenMetrics),
            (&["application/openmetrics-text;q=0"], Format::Plain),
            (&["application/openmetrics-text;q=high"], Format::Plain),
            (&[";,;q=,"], Format::Plain),
        ];
        for (accept, want) in table {
            let headers = accept.iter().map(|value| (ACCEPT, value.parse().unwrap())).collect();
            assert_eq!(Format::accepted(&headers), *want, "{accept:?}");
        }
    }

    #[test]
    fn plain_text_names_families_as_their_samples() {
        let mut registry = Registry::default();
        let counter = Family::<Vec<(String, String)>, Counter>::default();
        counter.get_or_create(&vec![("node".to_owned(), "# TYPE a \"b\"\n# EOF".to_owned())]).inc();
        registry.register("writes", "Writes so far", counter);
        registry.register_with_unit("uptime", "How long", Unit::Seconds, Gauge::<i64>::default());
        let histogram = Histogram::new([1.0]);
        histogram.observe(0.5);
        registry.register("size", "Sizes", histogram);
        registry.register("build", "Build", Info::new([("version", "1")]));
        let want = r##"# HELP writes_total Writes so far.
# TYPE writes_total counter
writes_total{node="# TYPE a \"b\"\n# EOF"} 1
# HELP uptime_seconds How long.
# TYPE uptime_seconds gauge
uptime_seconds 0
# HELP size Sizes.
# TYPE size histogram
size_sum 0.5
size_count 1
size_bucket{le="1.0"} 1
size_bucket{le="+Inf"} 1
# HELP build_info Build.
# TYPE build_info gauge
build_info{version="1"} 1
"##;
        assert_eq!(Format::Plain.text(&registry).unwrap(), want);
        let open = Format::OpenMetrics.text(&registry).unwrap();
        assert!(open.contains("# TYPE writes counter\n") && open.ends_with("# EOF\n"), "{open}");
        let samples = |text: &str| text.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(samples(&open), samples(want));
    }
}

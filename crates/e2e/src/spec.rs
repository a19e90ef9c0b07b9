//! A spec: one claim about a cluster, and how it is tried.
//!
//! In: id, title, tier, labels, needs, a function. Out: a [`Spec`] that runner, lists and filters read. Never: a spec
//! without a tier, or one that is listed and silently does nothing.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;

use crate::fixture::Fixture;
use crate::need::Need;

/// How a spec's function ends; see [`Skip`] for the third way.
pub type Result<T = ()> = anyhow::Result<T>;

/// The error of a spec that cannot be tried on this cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Skip(
    /// The capability that is missing.
    pub String,
);

/// The function of a spec.
pub type Body = Arc<dyn Fn(Fixture) -> BoxFuture<'static, Result> + Send + Sync>;

/// How important a spec is: 0 for every build, 3 for now and then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tier(pub u8);

/// The largest tier.
pub const LAST_TIER: u8 = 3;

/// What a spec does when its turn comes.
#[derive(Clone)]
pub enum Run {
    /// It is tried.
    Test(Body),
    /// It cannot be tried on any cluster, for this reason.
    Absent(&'static str),
}

/// One claim about a cluster.
#[derive(Clone)]
pub struct Spec {
    /// The number it has among those who know it, or a name; unique.
    pub id: String,
    /// The claim.
    pub title: String,
    /// The file it is in.
    pub feature: &'static str,
    /// Its importance.
    pub tier: Tier,
    /// Further labels, as filters name them.
    pub labels: Vec<&'static str>,
    /// Without one of these it is skipped.
    pub needs: Vec<Need>,
    /// The only node that it is about.
    pub node: Option<String>,
    /// How it is tried.
    pub run: Run,
}

impl fmt::Debug for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.id, self.title)
    }
}

impl Spec {
    /// A spec that is tried.
    pub fn new<F>(
        id: impl Into<String>,
        tier: u8,
        title: impl Into<String>,
        body: impl Fn(Fixture) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result> + Send + 'static,
    {
        let run = Run::Test(Arc::new(move |fixture| Box::pin(body(fixture))));
        Self::with(id.into(), tier, title.into(), run)
    }

    /// A spec that is listed with the reason why it cannot be tried.
    pub fn absent(id: impl Into<String>, tier: u8, title: impl Into<String>, reason: &'static str) -> Self {
        Self::with(id.into(), tier, title.into(), Run::Absent(reason))
    }

    fn with(id: String, tier: u8, title: String, run: Run) -> Self {
        Self {
            id,
            title,
            feature: "",
            tier: Tier(tier),
            labels: Vec::new(),
            needs: Vec::new(),
            node: None,
            run,
        }
    }

    /// Adds labels.
    #[must_use]
    pub fn labels(mut self, labels: &[&'static str]) -> Self {
        self.labels.extend(labels);
        self
    }

    /// Adds needs.
    #[must_use]
    pub fn needs(mut self, needs: impl IntoIterator<Item = Need>) -> Self {
        self.needs.extend(needs);
        self
    }

    /// It is about one node.
    #[must_use]
    pub fn on(mut self, node: &str) -> Self {
        self.node = Some(node.to_owned());
        self
    }

    /// The fewest nodes with which it can be tried.
    #[must_use]
    pub fn least_nodes(&self) -> usize {
        let counts = self.needs.iter().filter_map(|need| match need {
            Need::Aligning(count) => Some(*count),
            _ => None,
        });
        counts.chain(self.node.iter().map(|_| 1)).max().unwrap_or(0)
    }

    /// Whether nothing else may run beside it.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.needs.iter().any(|need| need.is_of_the_cluster())
    }

    /// All labels, those of tier and feature too.
    #[must_use]
    pub fn all_labels(&self) -> Vec<String> {
        let own = [format!("tier{}", self.tier.0), format!("feature:{}", self.feature)];
        own.into_iter().chain(self.labels.iter().map(|label| (*label).to_owned())).collect()
    }

    /// One line for lists and filters.
    #[must_use]
    pub fn line(&self) -> String {
        format!("[{}] {} {}", self.feature, self.id, self.title)
    }
}

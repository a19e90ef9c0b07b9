//! Leader election on a `Lease`, after client-go's rules, so that we and a Go process can contend for one lease.
//!
//! In: a strict client, a lease's name, an identity. Out: a [`Status`] that says who leads and until when.
//! Never: compares our clock with another machine's, or writes without naming the version it has read.
//!
//! # Rules
//! - Every write carries the `resourceVersion` it is based on; of two candidates that take over at once, one gets
//!   a conflict and reads again.
//! - A lease has expired when *we* have not seen it change for its duration, by our monotonic clock.
//! - The leader stops calling itself leader `renew_deadline` after it *sent* its last successful renewal; the
//!   others wait `lease_duration` from the time they saw it, which is later. So there is one leader at most, as
//!   long as clocks run at about the same speed.
//! - [`Status::leads`] looks at the clock, so a process that was stopped for a while does not believe it still
//!   leads when it wakes.
//!
//! # RBAC
//! `get` and `update` on the lease by name, `create` on leases in its namespace.

mod decision;

use crate::client::{brief, is_already_exists, is_conflict, is_not_found};
use crate::random::Random;
use decision::{Action, Observed, abdicate, claim, decide};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::PostParams;
use kube::{Api, Client};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::fmt::{Display, Formatter};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

/// How much longer than `retry_period` a candidate may wait, as a share of it: client-go's factor.
const JITTER: f64 = 1.2;
/// The grace of kube-scheduler's lease watchdog.
const OVERDUE: Duration = Duration::from_secs(20);

/// Which lease, who we are, and how patient we are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The lease's namespace.
    pub namespace: String,
    /// The lease's name.
    pub name: String,
    /// Unique for this process; [`crate::host::identity`] makes one.
    pub identity: String,
    /// How long the others wait for a sign of life before they take over. Whole seconds on the wire.
    pub lease_duration: Duration,
    /// How long the leader tries to renew before it gives up.
    pub renew_deadline: Duration,
    /// The pause between tries.
    pub retry_period: Duration,
}

impl Config {
    /// The defaults of every Kubernetes component: 15 s, 10 s, 2 s.
    pub fn new(namespace: &str, name: &str, identity: String) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity,
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }

    fn validate(&self) -> Result<(), Error> {
        let wrong = |text: &str| Err(Error::Config(text.to_owned()));
        if self.identity.is_empty() {
            return wrong("identity must not be empty");
        }
        if self.lease_duration < Duration::from_secs(1) || self.lease_duration > Duration::from_secs(86_400) {
            return wrong("leaseDuration must be between 1s and 24h");
        }
        if self.lease_duration <= self.renew_deadline {
            return wrong("leaseDuration must be greater than renewDeadline");
        }
        if self.retry_period.is_zero() || self.renew_deadline <= self.retry_period.mul_f64(JITTER) {
            return wrong("retryPeriod must be greater than 0 and less than renewDeadline / 1.2");
        }
        Ok(())
    }
}

/// Who leads, as far as we know.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// The holder last seen; empty before the first answer and when nobody holds the lease.
    pub holder: String,
    /// While we lead: until when that is certain without another renewal.
    pub leading_until: Option<Instant>,
}

impl Status {
    /// Whether we lead right now.
    pub fn leads(&self) -> bool {
        self.leading_until.is_some_and(|until| Instant::now() < until)
    }

    /// For `/healthz`: fails when we should have noticed long ago that we no longer lead, which means that the
    /// process hangs.
    ///
    /// # Errors
    /// Says for how long.
    pub fn check(&self) -> Result<(), String> {
        match self.leading_until.map(|until| until.elapsed()) {
            Some(overdue) if overdue > OVERDUE => Err(format!("lease not renewed, overdue for {overdue:?}")),
            _ => Ok(()),
        }
    }
}

/// A candidate for one lease.
#[derive(Debug)]
pub struct Candidate {
    api: Api<Lease>,
    config: Config,
    status: watch::Sender<Status>,
    observed: Option<Observed>,
    /// Nobody can have written since we did, as far as we know: renew without reading first.
    current: bool,
    random: Random,
    told: String,
}

impl Candidate {
    /// A candidate that has not asked for the lease yet. `client` is a strict one: calls have their own timeout
    /// here, but retries hidden in the client would defeat it.
    ///
    /// # Errors
    /// When the durations of `config` contradict each other.
    pub fn new(client: Client, config: Config) -> Result<Self, Error> {
        config.validate()?;
        Ok(Self {
            api: Api::namespaced(client, &config.namespace),
            config,
            status: watch::Sender::default(),
            observed: None,
            current: false,
            random: Random::from_entropy(),
            told: String::new(),
        })
    }

    /// Follows who leads.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    /// Shows `leader_election_master_status` for this lease, as Kubernetes' own components do.
    pub fn register(&self, registry: &mut Registry) {
        Self::register_all(&[self], registry);
    }

    /// The same for several leases of one process, as one metric.
    pub fn register_all(candidates: &[&Self], registry: &mut Registry) {
        let all = candidates.iter().map(|one| (one.config.name.clone(), one.status()));
        registry.register_collector(Box::new(Masters(all.collect())));
    }

    /// Stands for election and then holds the lease. Ends when `release` is cancelled, after giving the lease up:
    /// cancel it only when the work that needs the lease has stopped.
    ///
    /// # Errors
    /// When the lease was held and is lost. The process must end then, as client-go's users do: work that started
    /// under the lease may still be under way.
    pub async fn run(mut self, release: CancellationToken) -> Result<(), Error> {
        info!(lease = %self.config, identity = self.config.identity, "standing for leader");
        let lost = tokio::select! {
            biased;
            () = release.cancelled() => false,
            () = self.campaign() => true,
        };
        let led = self.status.send_replace(Status::default()).leads();
        if lost {
            return Err(Error::Lost(self.config.to_string()));
        }
        if led {
            match self.release().await {
                Ok(()) => info!(lease = %self.config, "lease released"),
                Err(reason) => warn!(lease = %self.config, reason, "lease not released, it will expire"),
            }
        }
        Ok(())
    }

    /// Returns when the lease was held and is lost.
    async fn campaign(&mut self) {
        loop {
            let led_until = self.status.borrow().leading_until;
            let deadline = led_until.unwrap_or_else(|| Instant::now() + self.config.renew_deadline);
            let pause = match timeout_at(deadline, self.attempt()).await {
                Ok(Ok(pause)) => pause,
                Ok(Err(reason)) => self.failed(reason),
                Err(_) => Duration::ZERO,
            };
            let leading_until = self.status.borrow().leading_until;
            let wake = Instant::now() + pause;
            match leading_until {
                Some(until) if until <= Instant::now() => return,
                // In time to notice that it is over.
                Some(until) => sleep_until(wake.min(until)).await,
                None if led_until.is_some() => return,
                None => sleep_until(wake).await,
            }
        }
    }

    /// One try to get or keep the lease; says how long to wait before the next.
    async fn attempt(&mut self) -> Result<Duration, String> {
        if self.current {
            match self.write(Action::Renew).await {
                Ok(()) => return Ok(self.config.retry_period),
                Err(Failure::Outdated(reason)) => {
                    debug!(lease = %self.config, reason, "reading the lease again")
                }
                Err(Failure::Other(reason)) => return Err(reason),
            }
        }
        self.read().await?;
        let now = Instant::now();
        match decide(self.observed.as_ref(), now, &self.config.identity, self.config.lease_duration) {
            // Also when the other's claim has run out by now: between ours and this there was another leader.
            Action::Wait(_) | Action::TakeOver if self.lost_to_another() => Ok(Duration::ZERO),
            Action::Wait(expiry) => {
                let jittered = self.config.retry_period.mul_f64(1.0 + JITTER * self.random.fraction());
                Ok(jittered.min(expiry.saturating_duration_since(now)))
            }
            action => match self.write(action).await {
                Ok(()) => Ok(self.config.retry_period),
                Err(Failure::Outdated(reason) | Failure::Other(reason)) => Err(reason),
            },
        }
    }

    /// Whether we led until now and the lease names somebody else; then we no longer lead. (A lease that names nobody
    /// was cleared or deleted by hand, and we may take it again.)
    fn lost_to_another(&self) -> bool {
        let named = self.observed.as_ref().is_some_and(|observed| !observed.holder().is_empty());
        named && self.status.send_if_modified(|status| status.leading_until.take().is_some())
    }

    async fn read(&mut self) -> Result<(), String> {
        let lease = match within(self.call_limit(), self.api.get_opt(&self.config.name)).await {
            Ok(lease) => lease,
            Err(Failure::Outdated(reason) | Failure::Other(reason)) => return Err(reason),
        };
        let known = self.observed.take();
        self.observed = lease.map(|lease| {
            let version = |lease: &Lease| lease.metadata.resource_version.clone();
            let unchanged = known.filter(|known| version(&known.lease) == version(&lease));
            unchanged.unwrap_or_else(|| Observed { lease, since: Instant::now() })
        });
        let holder = self.observed.as_ref().map(Observed::holder).unwrap_or_default().to_owned();
        self.publish(holder, None);
        Ok(())
    }

    async fn write(&mut self, action: Action) -> Result<(), Failure> {
        let lease = claim(self.observed.as_ref(), action, &self.config, Timestamp::now());
        let post = PostParams::default();
        // Until the answer is here, and also when this call is dropped half-way, nothing is certain.
        self.current = false;
        let sent = Instant::now();
        let lease = match action {
            Action::Create => within(self.call_limit(), self.api.create(&post, &lease)).await?,
            _ => within(self.call_limit(), self.api.replace(&self.config.name, &post, &lease)).await?,
        };
        self.observed = Some(Observed { lease, since: Instant::now() });
        self.current = true;
        self.told.clear();
        self.publish(self.config.identity.clone(), Some(sent + self.config.renew_deadline));
        Ok(())
    }

    async fn release(&self) -> Result<(), String> {
        let Some(observed) = &self.observed else { return Ok(()) };
        let lease = abdicate(observed, Timestamp::now());
        match within(self.call_limit(), self.api.replace(&self.config.name, &PostParams::default(), &lease))
            .await
        {
            Ok(_) => Ok(()),
            Err(Failure::Outdated(reason) | Failure::Other(reason)) => Err(reason),
        }
    }

    /// Tells who holds the lease and, when it is us, how long that is certain.
    fn publish(&self, holder: String, until: Option<Instant>) {
        let old = self.status.borrow().holder.clone();
        if old != holder && !holder.is_empty() {
            info!(lease = %self.config, holder, "new leader");
        }
        self.status.send_modify(|status| {
            status.holder = holder;
            status.leading_until = until.or(status.leading_until);
        });
    }

    fn failed(&mut self, reason: String) -> Duration {
        if self.told != reason {
            warn!(lease = %self.config, reason, "lease not written");
            self.told = reason;
        }
        self.config.retry_period
    }

    /// client-go gives a call half of the deadline, so that one lost packet does not cost the lease.
    fn call_limit(&self) -> Duration {
        self.config.renew_deadline / 2
    }
}

impl Display for Config {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

/// Why a call did not succeed.
enum Failure {
    /// Somebody wrote, created or deleted the lease meanwhile.
    Outdated(String),
    Other(String),
}

async fn within<T>(limit: Duration, call: impl Future<Output = kube::Result<T>>) -> Result<T, Failure> {
    match timeout(limit, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) if is_conflict(&error) || is_already_exists(&error) || is_not_found(&error) => {
            Err(Failure::Outdated(brief(&error)))
        }
        Ok(Err(error)) => Err(Failure::Other(brief(&error))),
        Err(_) => Err(Failure::Other(format!("no answer within {limit:?}"))),
    }
}

/// The metric of Kubernetes' components: 1 while this process leads, else 0.
#[derive(Debug)]
struct Masters(Vec<(String, watch::Receiver<Status>)>);

impl Collector for Masters {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let help = "1 while this process holds the lease of this name, else 0";
        let mut metric =
            encoder.encode_descriptor("leader_election_master_status", help, None, MetricType::Gauge)?;
        for (name, status) in &self.0 {
            let gauge = ConstGauge::new(i64::from(status.borrow().leads()));
            gauge.encode(metric.encode_family(&[("name", name.as_str())])?)?;
        }
        Ok(())
    }
}

/// Why there is no (more) leadership.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The settings contradict each other.
    #[error("leaderElection: {0}")]
    Config(String),
    /// We led and cannot be sure any more.
    #[error("leader election lost: lease {0}")]
    Lost(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config::new("kube-system", "tholepin", "host_1".to_owned())
    }

    #[test]
    fn contradicting_durations_are_refused() {
        let refused = |change: fn(&mut Config)| {
            let mut config = config();
            change(&mut config);
            config.validate().unwrap_err().to_string()
        };
        assert_eq!(config().validate(), Ok(()));
        assert!(refused(|config| config.renew_deadline = config.lease_duration).contains("renewDeadline"));
        assert!(refused(|config| config.retry_period = Duration::from_secs(9)).contains("retryPeriod"));
        assert!(refused(|config| config.retry_period = Duration::ZERO).contains("retryPeriod"));
        assert!(refused(|config| config.lease_duration = Duration::MAX).contains("leaseDuration"));
        assert!(refused(|config| config.identity.clear()).contains("identity"));
    }

    #[test]
    fn leadership_ends_by_the_clock() {
        let now = Instant::now();
        let status = |until| Status { holder: String::new(), leading_until: until };
        assert!(!status(None).leads());
        assert!(!status(Some(now)).leads());
        assert!(status(Some(now + Duration::from_secs(60))).leads());
        assert_eq!(status(None).check(), Ok(()));
        assert_eq!(status(Some(now)).check(), Ok(()));
        let long_ago = now.checked_sub(OVERDUE * 2).unwrap();
        assert!(status(Some(long_ago)).check().is_err());
    }
}

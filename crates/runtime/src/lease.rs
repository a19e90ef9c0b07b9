//! Leader election on a `Lease` by client-go's rules, so that this program and a Go process can contend for one lease.
//!
//! In: a client with a timeout, a lease's name, an identity. Out: a [`Status`] with the leader and the end of its term.
//! Never: a comparison of this machine's clock with another's, or a write without the version that was read.
//!
//! # Rules
//! - Every write carries the `resourceVersion` it is based on. Of two candidates that take over at once, one gets a
//!   conflict and reads again.
//! - A lease has expired when *this process* has not seen it change for its duration, by its monotonic clock.
//! - A leader's term ends `renew_deadline` after it *sent* its last successful renewal. Others wait `lease_duration`
//!   from the time they saw it, which is later. So there is one leader at most, as long as clocks run at about the same
//!   speed.
//! - [`Status::leads`] looks at the clock, so a process that was stopped for a while does not lead when it wakes.
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

/// Jitter of a candidate's wait, as a share of `retry_period`: client-go's factor.
const JITTER: f64 = 1.2;
/// The longest pause between two looks at another's lease, so that one that is given back is taken soon. client-go
/// waits the jittered retry period, 2 to 4.4 s; a look is one GET.
const LOOK: Duration = Duration::from_secs(1);
/// Delay after which the health check fails: that of kube-scheduler's lease watchdog.
const OVERDUE: Duration = Duration::from_secs(20);

/// The lease, the identity of this candidate, and the durations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The lease's namespace.
    pub namespace: String,
    /// The lease's name.
    pub name: String,
    /// The holder identity, unique for this process, as from [`crate::host::identity`].
    pub identity: String,
    /// Time without a renewal after which other candidates take over. Whole seconds on the wire.
    pub lease_duration: Duration,
    /// Time for which the leader tries to renew before it gives up.
    pub renew_deadline: Duration,
    /// Pause between attempts.
    pub retry_period: Duration,
}

impl Config {
    /// A configuration with the durations of Kubernetes' components: 15 s, 10 s, 2 s.
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

/// The leader, as far as this candidate knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// The holder last seen; empty before the first response, and when the lease has no holder.
    pub holder: String,
    /// The end of this candidate's term without another renewal; `None` when it does not lead.
    pub leading_until: Option<Instant>,
}

impl Status {
    /// Whether this candidate leads right now.
    pub fn leads(&self) -> bool {
        self.leading_until.is_some_and(|until| Instant::now() < until)
    }

    /// The health check: fails when the term ended more than 20 s ago and the candidate has not noticed, because the
    /// process hangs.
    ///
    /// # Errors
    /// The time since the term ended.
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
    /// Whether `observed` is this candidate's own last write, so that it renews without reading first.
    current: bool,
    random: Random,
    /// The failure logged last, to log each only once.
    logged: String,
}

impl Candidate {
    /// A candidate that has not sent a request yet. `client` has a timeout, and asks again after no answer: the calls
    /// made here are limited in time.
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
            logged: String::new(),
        })
    }

    /// A receiver of the status.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    /// Registers `leader_election_master_status` for this lease, as Kubernetes' own components do.
    pub fn register(&self, registry: &mut Registry) {
        Self::register_all(&[self], registry);
    }

    /// Registers the metric for several leases of one process.
    pub fn register_all(candidates: &[&Self], registry: &mut Registry) {
        let all = candidates.iter().map(|one| (one.config.name.clone(), one.status()));
        registry.register_collector(Box::new(MasterStatus(all.collect())));
    }

    /// Tries to get the lease and then holds it. Ends when `release` is cancelled, after the lease is released; the
    /// caller cancels it only when the work that needs the lease has stopped.
    ///
    /// # Errors
    /// When the lease was held and is lost. The process must end then, as client-go's users do: work that started under
    /// the lease may still be under way.
    pub async fn run(mut self, release: CancellationToken) -> Result<(), Error> {
        info!(lease = %self.config, identity = self.config.identity, "trying to become leader");
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

    /// Gets and holds the lease; returns when it is lost.
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
                // Early enough to notice the end of the term.
                Some(until) => sleep_until(wake.min(until)).await,
                None if led_until.is_some() => return,
                None => sleep_until(wake).await,
            }
        }
    }

    /// One attempt to get or keep the lease; returns the pause before the next.
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
            // Even if the other's term is over by now: there was another leader since ours.
            Action::Wait(_) | Action::TakeOver if self.lost_to_another() => Ok(Duration::ZERO),
            Action::Wait(expiry) => {
                let jittered = self.config.retry_period.mul_f64(1.0 + JITTER * self.random.fraction());
                Ok(jittered.min(LOOK).min(expiry.saturating_duration_since(now)))
            }
            action => match self.write(action).await {
                Ok(()) => Ok(self.config.retry_period),
                Err(Failure::Outdated(reason) | Failure::Other(reason)) => Err(reason),
            },
        }
    }

    /// Ends this candidate's term if the lease names another holder; whether it did. (A lease without a holder was
    /// cleared or deleted by hand, and may be taken again.)
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
        // Uncertain until the response arrives, and after a call that is dropped half-way.
        self.current = false;
        let sent = Instant::now();
        let lease = match action {
            Action::Create => within(self.call_limit(), self.api.create(&post, &lease)).await?,
            _ => within(self.call_limit(), self.api.replace(&self.config.name, &post, &lease)).await?,
        };
        self.observed = Some(Observed { lease, since: Instant::now() });
        self.current = true;
        self.logged.clear();
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

    /// Publishes the holder and, for this candidate, the end of its term.
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
        if self.logged != reason {
            warn!(lease = %self.config, reason, "lease not written");
            self.logged = reason;
        }
        self.config.retry_period
    }

    /// The timeout of a call: half of the deadline, as in client-go, so that one lost packet does not cost the lease.
    fn call_limit(&self) -> Duration {
        self.config.renew_deadline / 2
    }
}

impl Display for Config {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

/// A failed call.
enum Failure {
    /// The lease was written, created or deleted meanwhile.
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
struct MasterStatus(Vec<(String, watch::Receiver<Status>)>);

impl Collector for MasterStatus {
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

/// Registers the metric with a sample, for [`specimen`](crate::specimen).
pub(crate) fn sample(registry: &mut Registry) {
    let status = watch::Sender::<Status>::default().subscribe();
    registry.register_collector(Box::new(MasterStatus(vec![("lease".to_owned(), status)])));
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

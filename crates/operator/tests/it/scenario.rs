//! Scenarios of a kind, each noted when it has gone well, and looked at together once all of them have been played.
//!
//! In: what was asked for in each. Out: all of it. Never: a rule of what may be asked.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use k8s_openapi::api::rbac::v1::PolicyRule;
use testkit::audit::Request;
use testkit::controlplane::ControlPlane;
use testkit::quiescence::until_quiescent;

/// How long all of them may take.
const ALL_WITHIN: Duration = Duration::from_secs(1200);

/// What happened so far.
pub(crate) struct Played {
    /// Scenarios that ended, however.
    ended: usize,
    /// Scenarios that ended well.
    noted: usize,
    pub(crate) requests: Vec<Request>,
    /// The rights of operands, which the operator must hold to grant them.
    pub(crate) granted: Vec<PolicyRule>,
}

/// A scenario that is being played.
pub(crate) struct Scenario(&'static Mutex<Played>);

impl Played {
    pub(crate) const NOTHING: Self = Self { ended: 0, noted: 0, requests: Vec::new(), granted: Vec::new() };

    /// Waits until as many as there are have been played, which have to have gone well.
    pub(crate) fn all(played: &Mutex<Self>, scenarios: usize) -> Self {
        let began = Instant::now();
        while played.lock().unwrap().ended < scenarios {
            assert!(began.elapsed() < ALL_WITHIN, "scenarios that never end");
            std::thread::sleep(Duration::from_millis(100));
        }
        let played = std::mem::replace(&mut *played.lock().unwrap(), Self::NOTHING);
        assert_eq!(played.noted, scenarios, "scenarios have failed");
        played
    }
}

impl Scenario {
    pub(crate) fn begin(played: &'static Mutex<Played>) -> Self {
        Self(played)
    }

    /// Notes that it went well: of what was asked for, nothing was denied.
    pub(crate) fn note(self, requests: Vec<Request>, granted: Vec<PolicyRule>) {
        let mut played = self.0.lock().unwrap();
        played.noted += 1;
        played.requests.extend(requests);
        played.granted.extend(granted);
    }
}

impl Drop for Scenario {
    fn drop(&mut self) {
        if let Ok(mut played) = self.0.lock() {
            played.ended += 1;
        }
    }
}

/// What an account has asked for so far.
pub(crate) fn asked(control: &ControlPlane, namespace: &str, account: &str) -> Vec<Request> {
    let who = format!("system:serviceaccount:{namespace}:{account}");
    let mut all = control.audit().unwrap().requests().unwrap();
    all.retain(|request| request.user.username == who);
    all
}

/// What an account asked for that asks no more, once all of it is in the log: a watch is there when it is over.
pub(crate) async fn asked_in_all(control: &ControlPlane, namespace: &str, account: &str) -> Vec<Request> {
    let look = async || Ok(asked(control, namespace, account).len());
    until_quiescent(5, Duration::from_millis(100), look).await.unwrap();
    asked(control, namespace, account)
}

//! A session with a difference, made smaller while the difference lasts.

use sim::admit::session::{Session, Step};

/// Removes steps, containers and devices as long as `differs` holds. Cost: a few times the steps, each a run of both
/// kubelets.
pub fn minimise(session: &Session, differs: impl FnMut(&Session) -> bool) -> Session {
    shrink(session, candidates, differs)
}

/// Takes the first of the smaller candidates that differs, again and again, until none does.
pub(crate) fn shrink<T: Clone + PartialEq>(
    from: &T,
    candidates: impl Fn(&T) -> Vec<T>,
    mut differs: impl FnMut(&T) -> bool,
) -> T {
    let mut best = from.clone();
    loop {
        let smaller =
            candidates(&best).into_iter().find(|candidate| *candidate != best && differs(candidate));
        match smaller {
            Some(smaller) => best = smaller,
            None => return best,
        }
    }
}

/// Smaller sessions, the boldest first.
fn candidates(session: &Session) -> Vec<Session> {
    let mut smaller = Vec::new();
    let steps = session.steps.len();
    let mut block = steps / 2;
    while block > 0 {
        for start in (0..steps).step_by(block) {
            let mut candidate = session.clone();
            candidate.steps.drain(start..(start + block).min(steps));
            smaller.push(candidate);
        }
        block /= 2;
    }
    for at in 0..session.devices.len() {
        let mut candidate = session.clone();
        candidate.devices.remove(at);
        smaller.push(candidate);
    }
    for step in &session.steps {
        let Step::Admit { pod } = step else { continue };
        for list in ["initContainers", "containers"] {
            let containers = pod["spec"][list].as_array().map(Vec::as_slice).unwrap_or_default();
            for container in containers.iter().filter(|_| list == "initContainers" || containers.len() > 1) {
                let mut candidate = session.clone();
                let pods = candidate.steps.iter_mut().filter_map(Step::pod_mut);
                for other in pods.filter(|other| other["metadata"]["uid"] == pod["metadata"]["uid"]) {
                    if let Some(containers) = other["spec"][list].as_array_mut() {
                        containers.retain(|other| other["name"] != container["name"]);
                    }
                }
                smaller.push(candidate);
            }
        }
    }
    for field in ["cpuManagerPolicyOptions", "topologyManagerPolicyOptions"] {
        let names: Vec<String> =
            session.kubelet[field].as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect();
        for name in names {
            let mut candidate = session.clone();
            if let Some(options) = candidate.kubelet[field].as_object_mut() {
                options.remove(&name);
                smaller.push(candidate);
            }
        }
    }
    smaller
}

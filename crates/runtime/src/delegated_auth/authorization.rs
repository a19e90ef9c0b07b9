//! Whether a user may make a request.
//!
//! In: a user, a verb, a path. Out: a verdict. Never: a verdict in favour that no rule gives.

use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec, SubjectAccessReviewStatus,
};
use kube::Client;
use tokio::time::Instant;

use super::cache::Cache;
use super::{Error, Remember, Settings, User, ask};

/// The group that may do everything.
const MASTERS: &str = "system:masters";
/// Most verdicts that are remembered.
const VERDICTS: usize = 1_024;
/// The longest path about which a verdict is remembered.
const LONGEST_PATH: usize = 512;

/// Whether a user may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Allowed,
    /// With a reason, perhaps an empty one.
    Denied(String),
    /// The question could not be asked.
    Unknown(String),
}

/// A user, a verb, a path.
type Question = (User, String, String);

/// Tells who may do what.
pub(super) struct Authorization {
    client: Option<Client>,
    paths: Paths,
    remember: Remember,
    verdicts: Mutex<Cache<Question, Verdict>>,
}

impl Authorization {
    pub(super) fn new(settings: &Settings) -> Result<Self, Error> {
        Ok(Self {
            client: settings.authorization.clone(),
            paths: Paths::parse(&settings.always_allow_paths)?,
            remember: settings.remember,
            verdicts: Mutex::new(Cache::new(VERDICTS)),
        })
    }

    pub(super) async fn verdict(&self, user: &User, verb: &str, path: &str) -> Verdict {
        if user.groups.iter().any(|group| group == MASTERS) || self.paths.contain(path) {
            return Verdict::Allowed;
        }
        let Some(client) = &self.client else { return Verdict::Denied(String::new()) };
        let key = (user.clone(), verb.to_owned(), path.to_owned());
        let verdicts = || self.verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        let known = verdicts().get(&key, Instant::now());
        if let Some(verdict) = known {
            return verdict;
        }
        let verdict = review(client, user, verb, path).await;
        let holds = match verdict {
            Verdict::Allowed => self.remember.allowed,
            Verdict::Denied(_) => self.remember.denied,
            Verdict::Unknown(_) => return verdict,
        };
        if path.len() <= LONGEST_PATH {
            verdicts().insert(key, verdict.clone(), holds, Instant::now());
        }
        verdict
    }
}

/// Asks whether a user may.
async fn review(client: &Client, user: &User, verb: &str, path: &str) -> Verdict {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let asked = NonResourceAttributes { path: some(path), verb: some(verb) };
    let spec = SubjectAccessReviewSpec {
        user: some(&user.name),
        uid: some(&user.uid),
        groups: (!user.groups.is_empty()).then(|| user.groups.clone()),
        extra: (!user.extra.is_empty()).then(|| user.extra.clone()),
        non_resource_attributes: Some(asked),
        resource_attributes: None,
    };
    match ask(client, &SubjectAccessReview { spec, ..SubjectAccessReview::default() }).await {
        Ok(review) => judged(review.status.unwrap_or_default()),
        Err(reason) => {
            tracing::warn!(reason, "access not reviewed");
            Verdict::Unknown(reason)
        }
    }
}

/// The verdict of a review; a denial outweighs permission.
fn judged(status: SubjectAccessReviewStatus) -> Verdict {
    match (status.allowed, status.denied.unwrap_or(false)) {
        (true, true) => {
            Verdict::Unknown("webhook subject access review returned both allow and deny response".to_owned())
        }
        (true, false) => Verdict::Allowed,
        (false, _) => Verdict::Denied(status.reason.unwrap_or_default()),
    }
}

/// Paths that everybody may use.
#[derive(Debug, Default)]
struct Paths {
    whole: Vec<String>,
    prefixes: Vec<String>,
}

impl Paths {
    /// Reads paths, each with or without a slash before it, and perhaps a `*` at its end.
    fn parse(texts: &[String]) -> Result<Self, Error> {
        let mut paths = Self::default();
        for text in texts {
            let path = text.strip_prefix('/').unwrap_or(text);
            let (path, list) = match path.strip_suffix('*') {
                Some(prefix) => (prefix, &mut paths.prefixes),
                None => (path, &mut paths.whole),
            };
            if path.contains('*') {
                return Err(Error::Path(text.strip_prefix('/').unwrap_or(text).to_owned()));
            }
            list.push(path.to_owned());
        }
        Ok(paths)
    }

    fn contain(&self, path: &str) -> bool {
        let path = path.strip_prefix('/').unwrap_or(path);
        self.whole.iter().any(|whole| whole == path)
            || self.prefixes.iter().any(|start| path.starts_with(start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_whole_or_prefixes() {
        let paths =
            |texts: &[&str]| Paths::parse(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        let some = paths(&["/healthz", "livez", "/debug/*", "/"]).unwrap();
        for (path, wanted) in [
            ("/healthz", true),
            ("/healthz/ping", false),
            ("/livez", true),
            ("/debug/", true),
            ("/debug/a/b", true),
            ("/debug", false),
            ("/", true),
            ("/metrics", false),
        ] {
            assert_eq!(some.contain(path), wanted, "{path}");
        }
        assert!(paths(&["*"]).unwrap().contain("/metrics"));
        for wrong in ["/a*b", "/**"] {
            assert!(matches!(paths(&[wrong]), Err(Error::Path(text)) if format!("/{text}") == wrong));
        }
    }

    #[test]
    fn denials_outweigh_permission() {
        for (allowed, denied, wanted) in [
            (true, None, Verdict::Allowed),
            (true, Some(false), Verdict::Allowed),
            (false, None, Verdict::Denied("why".to_owned())),
            (false, Some(true), Verdict::Denied("why".to_owned())),
        ] {
            let reason = Some("why".to_owned());
            let status = SubjectAccessReviewStatus { allowed, denied, reason, evaluation_error: None };
            assert_eq!(judged(status), wanted);
        }
        let both = SubjectAccessReviewStatus { allowed: true, denied: Some(true), ..Default::default() };
        assert!(matches!(judged(both), Verdict::Unknown(_)));
    }
}

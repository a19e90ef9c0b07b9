//! kube-scheduler's feature gates, as far as they have an effect here.
//!
//! In: the value of `--feature-gates`. Out: whether gangs are placed whole, or an error in kube-scheduler's words.
//! Never: a gate of another feature; those are ignored.
//!
//! Source: component-base 0.36 `featuregate` and kube-scheduler 1.36 `kube_features.go`, where both gates are alpha.

use topology::gobool;

/// The component of a gate named as `kube:GATE=BOOL`, as in flags of 1.36.
const COMPONENT: &str = "kube:";
const ALL_ALPHA: &str = "AllAlpha";
const GENERIC_WORKLOAD: &str = "GenericWorkload";
const GANG_SCHEDULING: &str = "GangScheduling";

/// The gates of a command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Gates {
    /// GangScheduling is on, and GenericWorkload, on which it depends.
    pub(super) gang_scheduling: bool,
    /// A gate without effect is named.
    pub(super) has_others: bool,
}

/// Reads the value of the flag.
///
/// # Errors
/// When it is malformed, or a gate is on without one that it depends on.
pub(super) fn read(flag: &str) -> Result<Gates, String> {
    let (mut alpha, mut workload, mut gangs) = (None, None, None);
    let mut has_others = false;
    for stated in flag.split(',').filter(|stated| !stated.is_empty()) {
        let (name, value) = stated.split_once('=').unwrap_or((stated, ""));
        let (name, value) = (name.trim(), value.trim());
        if !stated.contains('=') {
            return Err(format!("--feature-gates: missing bool value for {name}"));
        }
        let Some(value) = gobool::parse(value) else {
            return Err(format!(
                "--feature-gates: invalid value of {name}={value}: it must be true or false"
            ));
        };
        match name.strip_prefix(COMPONENT).unwrap_or(name) {
            ALL_ALPHA => alpha = Some(value),
            GENERIC_WORKLOAD => workload = Some(value),
            GANG_SCHEDULING => gangs = Some(value),
            _ => has_others = true,
        }
    }
    let alpha = alpha.unwrap_or(false);
    let (workload, gang_scheduling) = (workload.unwrap_or(alpha), gangs.unwrap_or(alpha));
    if gang_scheduling && !workload {
        return Err(format!(
            "--feature-gates: {GANG_SCHEDULING} is enabled, but depends on features that are disabled: [{GENERIC_WORKLOAD}]"
        ));
    }
    Ok(Gates { gang_scheduling, has_others })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_are_read_as_by_kube_scheduler() {
        let both = Ok((true, false));
        for (flag, wanted) in [
            ("", Ok((false, false))),
            ("GenericWorkload=true,GangScheduling=true", both),
            ("kube:GenericWorkload=true,kube:GangScheduling=1", both),
            (" GangScheduling = T ,,GenericWorkload=true", both),
            ("AllAlpha=true", both),
            ("AllAlpha=true,GangScheduling=false,A=true", Ok((false, true))),
            ("GenericWorkload=true,B=false", Ok((false, true))),
            ("GangScheduling=true", Err("depends on features that are disabled: [GenericWorkload]")),
            ("AllAlpha=true,GenericWorkload=false", Err("[GenericWorkload]")),
            ("GangScheduling", Err("missing bool value for GangScheduling")),
            ("GangScheduling=yes", Err("invalid value of GangScheduling=yes")),
        ] {
            match (read(flag), wanted) {
                (Ok(found), Ok(wanted)) => {
                    assert_eq!((found.gang_scheduling, found.has_others), wanted, "{flag}")
                }
                (Err(found), Err(wanted)) => assert!(found.contains(wanted), "{flag}: {found}"),
                (found, _) => panic!("{flag}: {found:?}"),
            }
        }
    }
}

//! Who a container's process is and what it may do: in go a security context and the image's user, out come ids and
//! capabilities, worked out before the fork and taken on after it.

use std::io;

use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use super::super::api::LinuxContainerSecurityContext;

/// What containers get that ask for nothing (containerd and CRI-O agree on these).
const USUAL: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETFCAP)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::SYS_CHROOT)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::AUDIT_WRITE);

/// Ids and capabilities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    uid: u32,
    gid: u32,
    groups: Vec<Gid>,
    capabilities: CapabilitySet,
    no_new_privileges: bool,
}

impl Identity {
    /// Of a container with this context, from an image with this user and group.
    ///
    /// # Errors
    /// A capability or an id that does not exist; the message names it.
    pub(crate) fn new(
        context: &LinuxContainerSecurityContext,
        (uid, gid): (u32, u32),
    ) -> Result<Self, String> {
        let id = |field: &str, value: i64| {
            u32::try_from(value)
                .map_err(|_| format!("{field}: {value} is no id, allowed are 0 to {}", u32::MAX))
        };
        if !context.run_as_username.is_empty() {
            return Err(format!(
                "run_as_username: {:?} is unknown, images here have numbers only",
                context.run_as_username
            ));
        }
        let uid = context.run_as_user.map_or(Ok(uid), |user| id("run_as_user", user.value))?;
        let gid = context.run_as_group.map_or(Ok(gid), |group| id("run_as_group", group.value))?;
        let groups = context.supplemental_groups.iter().map(|&group| id("supplemental_groups", group));
        let groups = groups.map(|group| group.map(Gid::from_raw)).collect::<Result<_, _>>()?;
        let capabilities = if context.privileged { CapabilitySet::all() } else { bounding(context)? };
        Ok(Self { uid, gid, groups, capabilities, no_new_privileges: context.no_new_privs })
    }

    /// Makes the calling process that. Only system calls, no memory is asked for: it runs between fork and exec.
    pub(crate) fn assume(&self) -> io::Result<()> {
        let had = capabilities(None)?.permitted;
        for lost in had.difference(self.capabilities) {
            match remove_capability_from_bounding_set(lost) {
                // The kernel is older than the capability.
                Ok(()) | Err(Errno::INVAL) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        set_thread_groups(&self.groups)?;
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
        if uid.is_root() {
            // Anybody else has lost them all by now, as in any container.
            let left = had.intersection(self.capabilities);
            let sets =
                CapabilitySets { effective: left, permitted: left, inheritable: CapabilitySet::empty() };
            set_capabilities(None, sets)?;
        }
        if self.no_new_privileges {
            set_no_new_privs(true)?;
        }
        Ok(())
    }
}

/// What a process can have at most.
fn bounding(context: &LinuxContainerSecurityContext) -> Result<CapabilitySet, String> {
    let Some(wanted) = &context.capabilities else { return Ok(USUAL) };
    let (add, drop) = (&wanted.add_capabilities, &wanted.drop_capabilities);
    let all = |names: &[String]| names.iter().any(|name| name == "ALL");
    let mut set = if all(add) { CapabilitySet::all() } else { USUAL };
    if all(drop) {
        set = CapabilitySet::empty();
    }
    for name in add.iter().filter(|name| *name != "ALL") {
        set |= named(name)?;
    }
    for name in drop.iter().filter(|name| *name != "ALL") {
        set -= named(name)?;
    }
    Ok(set)
}

fn named(name: &str) -> Result<CapabilitySet, String> {
    let short = name.strip_prefix("CAP_").unwrap_or(name);
    CapabilitySet::from_name(short).ok_or_else(|| format!("capabilities: there is no {name:?}"))
}

#[cfg(test)]
mod tests {
    use super::super::super::api::{Capability, Int64Value};
    use super::*;

    #[test]
    fn capabilities_are_added_and_dropped() {
        let check = |add: &[&str], drop: &[&str], expected: Option<CapabilitySet>| {
            let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
            let capability = Capability { add_capabilities: owned(add), drop_capabilities: owned(drop) };
            let context = LinuxContainerSecurityContext {
                capabilities: Some(capability),
                ..LinuxContainerSecurityContext::default()
            };
            assert_eq!(bounding(&context).ok(), expected, "+{add:?} -{drop:?}");
        };
        check(&[], &[], Some(USUAL));
        check(&[], &["ALL"], Some(CapabilitySet::empty()));
        check(&["SYS_NICE"], &["ALL"], Some(CapabilitySet::SYS_NICE));
        check(&["ALL"], &["CAP_SYS_ADMIN"], Some(CapabilitySet::all() - CapabilitySet::SYS_ADMIN));
        check(&[], &["KILL"], Some(USUAL - CapabilitySet::KILL));
        check(&["FLY"], &[], None);
    }

    #[test]
    fn the_pod_wins_over_the_image() {
        let context = LinuxContainerSecurityContext {
            run_as_user: Some(Int64Value { value: 7 }),
            supplemental_groups: vec![8, 9],
            ..LinuxContainerSecurityContext::default()
        };
        let identity = Identity::new(&context, (1, 2)).unwrap();
        assert_eq!((identity.uid, identity.gid, identity.groups.len()), (7, 2, 2));
        let bad = LinuxContainerSecurityContext {
            run_as_group: Some(Int64Value { value: -1 }),
            ..LinuxContainerSecurityContext::default()
        };
        assert!(Identity::new(&bad, (1, 2)).unwrap_err().starts_with("run_as_group: -1"));
    }
}

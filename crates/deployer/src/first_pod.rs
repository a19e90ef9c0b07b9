//! The first pod to try after an installation.
//!
//! In: the scheduler's name. Out: a manifest, and the commands around it. Never: a pod that no kubelet would align; it
//! is Guaranteed and asks for whole CPUs.

/// The name of the pod.
pub const NAME: &str = "numa-try";

/// The manifest of a pod whose log shows the CPUs that it got.
#[must_use]
pub fn manifest(scheduler: &str) -> String {
    format!(
        "apiVersion: v1\n\
         kind: Pod\n\
         metadata:\n  \
           name: {NAME}\n\
         spec:\n  \
           schedulerName: {scheduler}\n  \
           terminationGracePeriodSeconds: 1\n  \
           containers:\n  \
           - name: main\n    \
             image: busybox\n    \
             command: [sh, -c, \"grep Cpus_allowed_list /proc/self/status; exec sleep infinity\"]\n    \
             resources:\n      \
               limits: {{cpu: \"2\", memory: 256Mi}} # requests are the same, so the pod is Guaranteed\n"
    )
}

/// The commands to type: create the pod, see its node and CPUs, see what its zone has left, delete it.
#[must_use]
pub fn commands(scheduler: &str) -> String {
    format!(
        "kubectl apply -f - <<'END'\n{}END\n\
         kubectl wait --for=condition=Ready pod/{NAME}\n\
         kubectl logs {NAME}\n\
         kubectl get noderesourcetopologies -o yaml\n\
         kubectl delete pod {NAME}\n",
        manifest(scheduler)
    )
}

#[cfg(test)]
mod tests {
    use topology::request::Qos;

    use super::*;

    #[test]
    fn the_pod_is_guaranteed_and_names_the_scheduler() {
        let pod: k8s_openapi::api::core::v1::Pod =
            runtime::yaml::read_str("pod", &manifest("s"), runtime::yaml::Mode::Lenient).unwrap();
        assert_eq!(pod.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref()), Some("s"));
        let request = api::convert::pod_request(&pod).unwrap();
        assert_eq!(request.needs().qos, Qos::Guaranteed);
        assert!(commands("s").contains(&manifest("s")));
    }
}

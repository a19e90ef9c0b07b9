//! A network of a cluster's own, where nothing of the machine's is reached and no port is ever taken.
//!
//! In: addresses wanted. Out: networks with that address on one common bridge, on which nodes, pods and the API server
//! reach each other as in a real cluster; the API server has the service address that pods get. There are no
//! services besides that one, and no DNS.

pub(crate) mod filter;
mod netlink;

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Context as _;
use tokio::net::{TcpListener, TcpStream};

use crate::namespace::Namespaces;

/// The service address of the API server, the first of [`SERVICES`].
pub const API: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);

/// Where a cluster's name server would be. Nothing answers there, so a lookup fails at once with the answer that
/// it failed.
pub const NAMES: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);

/// The range of service addresses.
pub const SERVICES: &str = "10.96.0.0/16";

/// Where the cluster's own end of the bridge is.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 88, 255, 254);

/// Everything on the bridge shares so many bits of its address with [`GATEWAY`].
pub const PREFIX: u8 = 16;

/// The address of a cluster's node by its number: from the slice of pod addresses that the last node would
/// have, as is [`GATEWAY`].
#[must_use]
pub fn node_address(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 88, 255, node as u8)
}

const BRIDGE: &str = "cluster";

/// The network of one cluster. Clones are the same network.
#[derive(Clone, Debug)]
pub struct Network(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    namespaces: Namespaces,
    /// Counts devices: an old one may linger while a new one gets its address.
    devices: AtomicU32,
}

impl Network {
    /// Makes a network; the caller stays where it is.
    ///
    /// # Errors
    /// When the kernel does not allow it (not root) or has no bridges.
    pub fn new() -> anyhow::Result<Self> {
        let namespaces = Namespaces::default().with_network()?;
        namespaces.run(|| {
            netlink::set_up("lo")?;
            netlink::add_address("lo", API, 32)?;
            netlink::add_address("lo", NAMES, 32)?;
            netlink::add_bridge(BRIDGE, GATEWAY)?;
            netlink::add_address(BRIDGE, GATEWAY, PREFIX)
        })??;
        Ok(Self(Arc::new(Inner { namespaces, devices: AtomicU32::new(0) })))
    }

    /// The network of the API server and its clients.
    #[must_use]
    pub fn namespaces(&self) -> &Namespaces {
        &self.0.namespaces
    }

    /// Says no when the calling thread is not in this network.
    pub(crate) fn expect_caller(&self) -> anyhow::Result<()> {
        let here = self.0.namespaces.has_callers_network()?;
        anyhow::ensure!(here, "the caller is not in the cluster's network; run it by testkit::net::private");
        Ok(())
    }

    /// The mounts of `seen` with a new network that has `address` and reaches all others on the bridge.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn attach(&self, seen: &Namespaces, address: Ipv4Addr) -> anyhow::Result<Namespaces> {
        let new = seen.with_network()?;
        let name = format!("v{}", self.0.devices.fetch_add(1, Ordering::Relaxed));
        let there = new.network().context("a network without a namespace")?;
        self.0.namespaces.run(|| netlink::add_veth(&name, BRIDGE, "eth0", address, there))??;
        Namespaces::default().with_network_of(&new).run(|| {
            netlink::set_up("lo")?;
            netlink::set_up("eth0")?;
            netlink::add_address("eth0", address, PREFIX)?;
            netlink::add_default_route(GATEWAY)
        })??;
        Ok(new)
    }
}

/// Runs a test or a task in a network of its own, on a runtime whose threads are all in it, and so are the programs it
/// starts.
///
/// ```no_run
/// # use testkit::{cluster::Cluster, cri::Images, net};
/// # fn test() -> anyhow::Result<()> {
/// let Ok(rig) = testkit::env::rig() else { return Ok(()) };
/// net::private(async |network| {
///     let cluster = Cluster::builder().installable(network, Images::new()).start(&rig).await?;
///     anyhow::Ok(())
/// })?
/// # }
/// ```
///
/// # Errors
/// When the network cannot be made.
pub fn private<T: Send>(body: impl AsyncFnOnce(Network) -> T + Send) -> anyhow::Result<T> {
    let network = Network::new()?;
    // Output of a thread started by the test is captured with the test's.
    network.0.namespaces.run(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        Ok(runtime.block_on(body(network.clone())))
    })?
}

/// Lets the machine into the network: a client of `listener`, which was made outside, is connected to the API
/// server. It goes on until dropped.
///
/// # Errors
/// When connections can no longer be taken.
pub async fn forward(listener: std::net::TcpListener) -> anyhow::Result<Infallible> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (mut outside, _) = listener.accept().await?;
        tokio::spawn(async move {
            let mut inside = TcpStream::connect((API, 443)).await?;
            // Either end may hang up whenever it likes.
            tokio::io::copy_bidirectional(&mut outside, &mut inside).await
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    #[test]
    fn networks_reach_each_other_and_the_api_address_and_nothing_else() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("SKIPPED: not root");
        }
        let network = Network::new().unwrap();
        let (a, b) = (Ipv4Addr::new(10, 88, 0, 1), Ipv4Addr::new(10, 88, 1, 1));
        let first = network.attach(&Namespaces::default(), a).unwrap();
        let second = network.attach(&Namespaces::default(), b).unwrap();
        let check = |server: &Namespaces, address: Ipv4Addr, client: &Namespaces| {
            let listener = server.run(|| TcpListener::bind((address, 443)).unwrap()).unwrap();
            let mut asked = client.run(|| TcpStream::connect((address, 443)).unwrap()).unwrap();
            let (mut answering, from) = listener.accept().unwrap();
            answering.write_all(from.ip().to_string().as_bytes()).unwrap();
            drop(answering);
            let mut answer = String::new();
            asked.read_to_string(&mut answer).unwrap();
            answer
        };
        let cluster = network.namespaces();
        assert_eq!(check(&second, b, &first), a.to_string());
        assert_eq!(check(cluster, API, &first), a.to_string());
        assert_eq!(check(&first, a, cluster), GATEWAY.to_string());
        let outside = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = outside.local_addr().unwrap();
        assert!(cluster.run(|| TcpStream::connect(port)).unwrap().is_err());
    }
    #[test]
    fn a_node_that_leaves_keeps_the_others_connected() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("SKIPPED: not root");
        }
        let network = Network::new().unwrap();
        let attach = |host| network.attach(&Namespaces::default(), Ipv4Addr::new(10, 88, 0, host)).unwrap();
        let stays = attach(1);
        let leave: Vec<_> = (2..10).map(attach).collect();
        let _api = network.namespaces().run(|| TcpListener::bind((API, 443)).unwrap()).unwrap();
        let connects = || {
            let within = Duration::from_secs(5);
            stays.run(|| TcpStream::connect_timeout(&(API, 443).into(), within).is_ok()).unwrap()
        };
        assert!(connects());
        drop(leave);
        let devices = || {
            // `/sys/class/net` shows the network of the process that mounted it; this one does not.
            let text = network.namespaces().run(|| std::fs::read_to_string("/proc/thread-self/net/dev"));
            text.unwrap().unwrap().lines().filter(|line| line.trim_start().starts_with('v')).count()
        };
        let began = Instant::now();
        while devices() > 1 {
            assert!(began.elapsed() < Duration::from_secs(60), "the kernel keeps networks without a holder");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(connects());
    }
}

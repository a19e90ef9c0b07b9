//! Links, addresses and routes of the calling thread's network, by the kernel's own protocol (rtnetlink), so
//! that no `ip` program is needed.
//!
//! In: what there shall be. Out: done, or the kernel's refusal. Nothing is listed, changed or removed: the
//! networks made here go as a whole.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

use anyhow::Context as _;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

// include/uapi/linux/{netlink,rtnetlink,if_link,if_addr,veth}.h
const NLM_F_REQUEST: u16 = 0x1;
pub(super) const NLM_F_ACK: u16 = 0x4;
pub(super) const NLM_F_CREATE: u16 = 0x400;
const NLMSG_ERROR: u16 = 2;
const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const RTA_GATEWAY: u16 = 5;
const AF_INET: u8 = 2;
const IFF_UP: u32 = 1;
const RT_TABLE_MAIN: u8 = 254;
const RTPROT_STATIC: u8 = 4;
const RTN_UNICAST: u8 = 1;

/// Length of a message's header.
const HEADER: usize = 16;

/// A bridge, up, that shall have this address.
pub(super) fn add_bridge(name: &str, address: Ipv4Addr) -> anyhow::Result<()> {
    let mut message = Message::new(RTM_NEWLINK, NLM_F_CREATE | NLM_F_ACK);
    message.link_header(0, IFF_UP);
    message.text(IFLA_IFNAME, name);
    // Without its own address the bridge takes that of a port, and is unreachable for a minute after that port is gone.
    message.attribute(IFLA_ADDRESS, &hardware(address));
    message.nested(IFLA_LINKINFO, |info| info.text(IFLA_INFO_KIND, "bridge"));
    message.send().with_context(|| format!("adding bridge {name}"))
}

/// A pair of linked devices: `name` here at a port of `bridge`, up, and `peer`, which shall have this address, in the
/// network `of`. It cannot be set up before there are both.
pub(super) fn add_veth(
    name: &str,
    bridge: &str,
    peer: &str,
    address: Ipv4Addr,
    of: BorrowedFd<'_>,
) -> anyhow::Result<()> {
    let mut message = Message::new(RTM_NEWLINK, NLM_F_CREATE | NLM_F_ACK);
    message.link_header(0, IFF_UP);
    message.text(IFLA_IFNAME, name);
    message.attribute(IFLA_MASTER, &index(bridge)?.to_ne_bytes());
    message.nested(IFLA_LINKINFO, |info| {
        info.text(IFLA_INFO_KIND, "veth");
        info.nested(IFLA_INFO_DATA, |data| {
            data.nested(VETH_INFO_PEER, |other| {
                other.link_header(0, 0);
                other.text(IFLA_IFNAME, peer);
                other.attribute(IFLA_ADDRESS, &hardware(address));
                other.attribute(IFLA_NET_NS_FD, &of.as_raw_fd().to_ne_bytes());
            });
        });
    });
    message.send().with_context(|| format!("adding veth {name} with peer {peer}"))
}

/// Switches a device on.
pub(super) fn set_up(device: &str) -> anyhow::Result<()> {
    let mut message = Message::new(RTM_NEWLINK, NLM_F_ACK);
    message.link_header(index(device)?, IFF_UP);
    message.send().with_context(|| format!("setting {device} up"))
}

/// Gives a device an address; what shares its first `prefix` bits is reached directly.
pub(super) fn add_address(device: &str, address: Ipv4Addr, prefix: u8) -> anyhow::Result<()> {
    let mut message = Message::new(RTM_NEWADDR, NLM_F_CREATE | NLM_F_ACK);
    message.bytes.extend([AF_INET, prefix, 0, 0]);
    message.bytes.extend(index(device)?.to_ne_bytes());
    message.attribute(IFA_LOCAL, &address.octets());
    message.attribute(IFA_ADDRESS, &address.octets());
    message.send().with_context(|| format!("giving {device} the address {address}/{prefix}"))
}

/// Sends whatever has no other way to `gateway`.
pub(super) fn add_default_route(gateway: Ipv4Addr) -> anyhow::Result<()> {
    let mut message = Message::new(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_ACK);
    message.bytes.extend([AF_INET, 0, 0, 0, RT_TABLE_MAIN, RTPROT_STATIC, 0, RTN_UNICAST, 0, 0, 0, 0]);
    message.attribute(RTA_GATEWAY, &gateway.octets());
    message.send().with_context(|| format!("adding a default route to {gateway}"))
}

/// The hardware address of an address: always the same, so that entries in neighbour tables stay valid.
fn hardware(address: Ipv4Addr) -> [u8; 6] {
    let [a, b, c, d] = address.octets();
    // Two bits say that no manufacturer gave it, and that it is one device's.
    [0x02, 0, a, b, c, d]
}

/// A request being written: a header, a fixed part, attributes.
pub(super) struct Message {
    bytes: Vec<u8>,
}

impl Message {
    pub(super) fn new(kind: u16, flags: u16) -> Self {
        let mut bytes = vec![0; 4]; // the length, when it is known
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((flags | NLM_F_REQUEST).to_ne_bytes());
        bytes.extend([0; 8]); // sequence number and sender
        Self { bytes }
    }

    /// The fixed part, before any attribute.
    pub(super) fn fixed(mut self, part: [u8; 4]) -> Self {
        self.bytes.extend(part);
        self
    }

    /// The fixed part about a device, with [`IFF_UP`] or no flags; a new one has no index.
    fn link_header(&mut self, index: u32, flags: u32) {
        self.bytes.extend([0; 4]);
        self.bytes.extend(index.to_ne_bytes());
        self.bytes.extend(flags.to_ne_bytes());
        self.bytes.extend(flags.to_ne_bytes()); // which of them to change
    }

    pub(super) fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.nested(kind, |inner| inner.bytes.extend(value));
    }

    pub(super) fn text(&mut self, kind: u16, value: &str) {
        self.nested(kind, |inner| {
            inner.bytes.extend(value.as_bytes());
            inner.bytes.push(0);
        });
    }

    /// An attribute: length, kind, value, padding to four bytes that does not count.
    pub(super) fn nested(&mut self, kind: u16, write: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.bytes.extend([0; 2]);
        self.bytes.extend(kind.to_ne_bytes());
        write(self);
        let length = (self.bytes.len() - start) as u16;
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// The whole of it, with its length.
    pub(super) fn finish(mut self) -> Vec<u8> {
        let length = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes
    }

    /// Sends it and waits for the kernel's word on it.
    fn send(self) -> anyhow::Result<()> {
        let socket = socket()?;
        send(&socket, &self.finish(), SendFlags::empty())?;
        let mut answer = [0; 4096];
        let (_, length) = recv(&socket, &mut answer, RecvFlags::empty())?;
        acknowledged(&answer[..length])
    }
}

/// The kernel's word on a request.
pub(super) fn acknowledged(answer: &[u8]) -> anyhow::Result<()> {
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    let code = answer.get(HEADER..HEADER + 4).and_then(|bytes| bytes.try_into().ok());
    match (kind, code.map(i32::from_ne_bytes)) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(NLMSG_ERROR), Some(code)) => Err(io::Error::from_raw_os_error(-code).into()),
        _ => anyhow::bail!("the kernel's answer is no acknowledgement"),
    }
}

fn socket() -> anyhow::Result<OwnedFd> {
    // The protocol called nothing is the one for routes.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None);
    socket.context("opening a netlink socket")
}

fn index(device: &str) -> anyhow::Result<u32> {
    rustix::net::netdevice::name_to_index(socket()?, device).with_context(|| format!("no device {device}"))
}

//! Which connections the calling thread's network takes and makes, by the kernel's own protocol (nf_tables), so that no
//! `nft` program is needed.
//!
//! In: blocks of addresses and ports that are allowed. Out: just these in force, all at once, or the kernel's refusal.
//! Never: a connection that is there already, nor one of the network to itself. What is not allowed is answered with
//! "administratively prohibited". Linux believes the second such answer, so a client knows after a second.

use std::net::Ipv4Addr;

use anyhow::Context as _;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink::NETFILTER, recv, send, socket_with,
};

use super::netlink::{Message, NLM_F_ACK, NLM_F_CREATE, acknowledged};

// include/uapi/linux/netfilter/{nfnetlink,nf_tables}.h, and netfilter.h
const NLM_F_APPEND: u16 = 0x800;
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
const NF_TABLES: u16 = 10;
const NEW_TABLE: u16 = 0;
const DELETE_TABLE: u16 = 2;
const NEW_CHAIN: u16 = 3;
const NEW_RULE: u16 = 6;
const INET: u8 = 1;
const IPV4: u8 = 2;
const LOCAL_IN: u32 = 1;
const LOCAL_OUT: u32 = 3;
const DROP: u32 = 0;
const ACCEPT: u32 = 1;
const REGISTER: u32 = 1;
const VERDICT_REGISTER: u32 = 0;
const META_IN_NAME: u32 = 6;
const META_OUT_NAME: u32 = 7;
const META_FAMILY: u32 = 15;
const META_PROTOCOL: u32 = 16;
const CT_STATE: u32 = 0;
const ESTABLISHED_OR_RELATED: u32 = 2 | 4;
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
const SOURCE: u32 = 12;
const DESTINATION: u32 = 16;
const DESTINATION_PORT: u32 = 2;
const TCP: u8 = 6;
const TCP_FLAGS: u32 = 13;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;
const AT_MOST: u32 = 3;
const AT_LEAST: u32 = 5;
const REJECT_ANY_FAMILY: u32 = 2;
const PROHIBITED: u8 = 3;

/// How long the kernel waits between two answers that something is prohibited, of the calling thread's network.
const ANSWER_LIMIT: &str = "/proc/sys/net/ipv4/icmp_ratelimit";

/// Our only table.
const TABLE: &str = "policy";

/// What is allowed; nothing said about a direction allows all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    /// Connections from others.
    pub(crate) ingress: Option<Vec<Rule>>,
    /// Connections to others.
    pub(crate) egress: Option<Vec<Rule>>,
}

/// Connections that are allowed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rule {
    /// The other end.
    pub(crate) peer: Block,
    /// Blocks that are no part of `peer` after all.
    pub(crate) except: Vec<Block>,
    /// Any protocol and port if there is nothing.
    pub(crate) ports: Option<Ports>,
}

/// Addresses that share their first `prefix` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Block {
    pub(crate) address: Ipv4Addr,
    pub(crate) prefix: u8,
}

/// Ports where a connection ends, the last one included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ports {
    /// By the number of the internet protocol.
    pub(crate) protocol: u8,
    /// All if there is nothing.
    pub(crate) range: Option<(u16, u16)>,
}

/// A direction.
struct Direction {
    chain: &'static str,
    hook: u32,
    /// The key of the device's name.
    device: u32,
    /// Where in the header the peer's address is.
    peer: u32,
}

const INGRESS: Direction = Direction { chain: "ingress", hook: LOCAL_IN, device: META_IN_NAME, peer: SOURCE };
const EGRESS: Direction =
    Direction { chain: "egress", hook: LOCAL_OUT, device: META_OUT_NAME, peer: DESTINATION };

impl Filter {
    /// Puts it in the place of the one before.
    pub(crate) fn apply(&self) -> anyhow::Result<()> {
        // Else the kernel answers a few of many clients, and the others wait for a second.
        std::fs::write(ANSWER_LIMIT, "0").with_context(|| format!("writing {ANSWER_LIMIT}"))?;
        // Made so that there is one to delete.
        let mut messages = vec![table(NEW_TABLE), table(DELETE_TABLE)];
        if self.ingress.is_some() || self.egress.is_some() {
            messages.push(table(NEW_TABLE));
        }
        for (direction, rules) in [(INGRESS, &self.ingress), (EGRESS, &self.egress)] {
            if let Some(rules) = rules {
                direction.write(rules, &mut messages);
            }
        }
        let mut batch = message(BATCH_BEGIN, 0, 0).finish();
        batch.extend(messages.into_iter().flat_map(Message::finish));
        batch.extend(message(BATCH_END, 0, 0).finish());
        commit(&batch).context("setting the rules of a network")
    }
}

impl Block {
    /// Reads a block as `10.0.0.0/8`.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/')?;
        let prefix = prefix.parse().ok().filter(|prefix| *prefix <= 32)?;
        Some(Self { address: address.parse().ok()?, prefix })
    }

    /// One address.
    pub(crate) fn one(address: Ipv4Addr) -> Self {
        Self { address, prefix: 32 }
    }

    fn mask(self) -> u32 {
        u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0)
    }
}

impl Direction {
    fn write(&self, rules: &[Rule], messages: &mut Vec<Message>) {
        let mut chain = of_tables(NEW_CHAIN, NLM_F_CREATE);
        chain.text(1, TABLE);
        chain.text(3, self.chain);
        chain.nested(4, |hook| {
            number(hook, 1, self.hook);
            number(hook, 2, 0);
        });
        number(&mut chain, 5, DROP);
        chain.text(7, "filter");
        messages.push(chain);
        messages.push(self.rule(|list| {
            let mut name = [0; 16];
            name[..2].copy_from_slice(b"lo");
            meta(list, self.device);
            compare(list, EQUAL, &name);
            accept(list);
        }));
        messages.push(self.rule(|list| {
            expression(list, "ct", |data| {
                number(data, 1, REGISTER);
                number(data, 2, CT_STATE);
            });
            mask(list, ESTABLISHED_OR_RELATED.to_ne_bytes());
            compare(list, NOT_EQUAL, &[0; 4]);
            accept(list);
        }));
        // The kernel follows connections from the first filter on: one from before counts as new, whichever end
        // speaks first. Only its opening tells.
        messages.push(self.rule(|list| {
            meta(list, META_PROTOCOL);
            compare(list, EQUAL, &[TCP]);
            payload(list, TRANSPORT_HEADER, TCP_FLAGS, 1);
            mask(list, [SYN | ACK, 0, 0, 0]);
            compare(list, NOT_EQUAL, &[SYN, 0, 0, 0]);
            accept(list);
        }));
        messages.extend(rules.iter().map(|rule| self.rule(|list| rule.write(self.peer, list))));
        messages.push(self.rule(|list| {
            expression(list, "reject", |data| {
                number(data, 1, REJECT_ANY_FAMILY);
                data.attribute(2, &[PROHIBITED]);
            });
        }));
    }

    fn rule(&self, expressions: impl FnOnce(&mut Message)) -> Message {
        let mut rule = of_tables(NEW_RULE, NLM_F_CREATE | NLM_F_APPEND);
        rule.text(1, TABLE);
        rule.text(2, self.chain);
        rule.nested(4, expressions);
        rule
    }
}

impl Rule {
    /// Conditions, and then what happens if all hold.
    fn write(&self, peer: u32, list: &mut Message) {
        meta(list, META_FAMILY);
        compare(list, EQUAL, &[IPV4]);
        self.peer.write(peer, EQUAL, list);
        for except in &self.except {
            except.write(peer, NOT_EQUAL, list);
        }
        if let Some(Ports { protocol, range }) = self.ports {
            meta(list, META_PROTOCOL);
            compare(list, EQUAL, &[protocol]);
            if let Some((first, last)) = range {
                payload(list, TRANSPORT_HEADER, DESTINATION_PORT, 2);
                compare(list, AT_LEAST, &first.to_be_bytes());
                compare(list, AT_MOST, &last.to_be_bytes());
            }
        }
        accept(list);
    }
}

impl Block {
    fn write(self, at: u32, operation: u32, list: &mut Message) {
        payload(list, NETWORK_HEADER, at, 4);
        mask(list, self.mask().to_be_bytes());
        compare(list, operation, &(self.address.to_bits() & self.mask()).to_be_bytes());
    }
}

fn table(kind: u16) -> Message {
    // The last one that there always is has the kernel answer; refusals come in any case.
    let flags = if kind == NEW_TABLE { NLM_F_CREATE } else { NLM_F_ACK };
    let mut table = of_tables(kind, flags);
    table.text(1, TABLE);
    table
}

fn of_tables(kind: u16, flags: u16) -> Message {
    message(NF_TABLES << 8 | kind, flags, INET)
}

fn message(kind: u16, flags: u16, family: u8) -> Message {
    let [high, low] = NF_TABLES.to_be_bytes();
    let subsystem = if family == 0 { [high, low] } else { [0, 0] };
    Message::new(kind, flags).fixed([family, 0, subsystem[0], subsystem[1]])
}

fn number(message: &mut Message, kind: u16, value: u32) {
    message.attribute(kind, &value.to_be_bytes());
}

fn expression(list: &mut Message, name: &str, data: impl FnOnce(&mut Message)) {
    list.nested(1, |element| {
        element.text(1, name);
        element.nested(2, data);
    });
}

fn meta(list: &mut Message, key: u32) {
    expression(list, "meta", |data| {
        number(data, 1, REGISTER);
        number(data, 2, key);
    });
}

fn payload(list: &mut Message, header: u32, offset: u32, length: u32) {
    expression(list, "payload", |data| {
        for (kind, value) in [(1, REGISTER), (2, header), (3, offset), (4, length)] {
            number(data, kind, value);
        }
    });
}

fn mask(list: &mut Message, mask: [u8; 4]) {
    expression(list, "bitwise", |data| {
        for (kind, value) in [(1, REGISTER), (2, REGISTER), (3, 4)] {
            number(data, kind, value);
        }
        data.nested(4, |value| value.attribute(1, &mask));
        data.nested(5, |value| value.attribute(1, &[0; 4]));
    });
}

fn compare(list: &mut Message, operation: u32, with: &[u8]) {
    expression(list, "cmp", |data| {
        number(data, 1, REGISTER);
        number(data, 2, operation);
        data.nested(3, |value| value.attribute(1, with));
    });
}

fn accept(list: &mut Message) {
    expression(list, "immediate", |data| {
        number(data, 1, VERDICT_REGISTER);
        data.nested(2, |value| value.nested(2, |verdict| number(verdict, 1, ACCEPT)));
    });
}

/// Sends a batch; the kernel has done all or nothing of it when this returns.
fn commit(batch: &[u8]) -> anyhow::Result<()> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(NETFILTER))?;
    send(&socket, batch, SendFlags::empty())?;
    let mut answer = [0; 4096];
    let mut answers = 0;
    loop {
        match recv(&socket, &mut answer, RecvFlags::DONTWAIT) {
            Ok((_, length)) => acknowledged(&answer[..length])?,
            Err(Errno::AGAIN) if answers > 0 => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        answers += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;
    use crate::namespace::Namespaces;
    use crate::net::Network;

    #[test]
    fn blocks_are_read() {
        let check = |text: &str, expected: Option<(u8, u32)>| {
            let block = Block::read(text);
            assert_eq!(block.map(|block| (block.prefix, block.mask())), expected, "{text:?}");
        };
        check("10.0.0.0/8", Some((8, 0xff00_0000)));
        check("0.0.0.0/0", Some((0, 0)));
        check("10.1.2.3/32", Some((32, u32::MAX)));
        for bad in ["10.0.0.0", "10.0.0.0/33", "10.0.0/8", "fd00::/8", ""] {
            check(bad, None);
        }
    }

    /// What a client hears of a connection.
    #[derive(Debug, PartialEq)]
    enum Heard {
        Taken,
        Refused,
        Prohibited,
    }

    /// Port 80 and 81 have a server each, port 82 has none.
    #[test]
    fn connections_are_allowed_and_prohibited() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("SKIPPED: not root");
        }
        let network = Network::new().unwrap();
        let address = |host: u8| Ipv4Addr::new(10, 88, 0, host);
        let [server, one, other] =
            [1, 2, 3].map(|host| network.attach(&Namespaces::default(), address(host)).unwrap());
        let bind = |port: u16| server.run(|| TcpListener::bind(("0.0.0.0", port)).unwrap()).unwrap();
        let _servers = [bind(80), bind(81)];
        let connect = |client: &Namespaces, port: u16| match client
            .run(|| TcpStream::connect((address(1), port)))
            .unwrap()
        {
            Ok(_) => Heard::Taken,
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Heard::Refused,
            Err(error) if error.kind() == ErrorKind::HostUnreachable => Heard::Prohibited,
            Err(error) => panic!("{error}"),
        };
        let apply = |to: &Namespaces, filter: &Filter| to.run(|| filter.apply()).unwrap().unwrap();
        let rule = |peer: &str, ports: Option<Ports>| {
            vec![Rule { peer: Block::read(peer).unwrap(), except: Vec::new(), ports }]
        };
        let tcp = |first, last| Some(Ports { protocol: 6, range: Some((first, last)) });
        let check = |from_one: [Heard; 3], from_other: [Heard; 3]| {
            // All at the same time: each prohibited one takes a second.
            std::thread::scope(|scope| {
                let asked = [&one, &other]
                    .map(|client| [80, 81, 82].map(|port| scope.spawn(move || connect(client, port))));
                let heard = asked.map(|ports| ports.map(|asked| asked.join().unwrap()));
                assert_eq!(heard, [from_one, from_other]);
            });
        };
        use Heard::{Prohibited, Refused, Taken};
        check([Taken, Taken, Refused], [Taken, Taken, Refused]);

        let only = Filter { ingress: Some(rule("10.88.0.2/32", tcp(81, 82))), egress: None };
        apply(&server, &only);
        check([Prohibited, Taken, Refused], [Prohibited, Prohibited, Prohibited]);
        assert_eq!(connect(&server, 80), Taken, "of the network to itself");

        let mut most = rule("10.88.0.0/24", None);
        most[0].except.push(Block::one(address(2)));
        apply(&server, &Filter { ingress: Some(most), egress: Some(Vec::new()) });
        check([Prohibited, Prohibited, Prohibited], [Taken, Taken, Refused]);

        apply(&server, &Filter::default());
        apply(&one, &Filter { ingress: Some(Vec::new()), egress: Some(rule("10.88.0.1/32", tcp(80, 80))) });
        check([Taken, Prohibited, Prohibited], [Taken, Taken, Refused]);
        let udp = Some(Ports { protocol: 17, range: None });
        apply(&one, &Filter { ingress: None, egress: Some(rule("0.0.0.0/0", udp)) });
        check([Prohibited, Prohibited, Prohibited], [Taken, Taken, Refused]);
    }

    /// A client waits for a long answer while its network gets its first filter.
    #[test]
    fn connections_from_before_stay() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("SKIPPED: not root");
        }
        let network = Network::new().unwrap();
        let address = |host: u8| Ipv4Addr::new(10, 88, 0, host);
        let [server, client] =
            [1, 2].map(|host| network.attach(&Namespaces::default(), address(host)).unwrap());
        let listener = server.run(|| TcpListener::bind(("0.0.0.0", 80)).unwrap()).unwrap();
        let mut asking = client.run(|| TcpStream::connect((address(1), 80)).unwrap()).unwrap();
        let (mut answering, _) = listener.accept().unwrap();
        let nothing_in = Filter { ingress: Some(Vec::new()), egress: Some(Vec::new()) };
        client.run(|| nothing_in.apply()).unwrap().unwrap();
        answering.write_all(b"answer").unwrap();
        asking.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut answer = [0; 6];
        asking.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"answer");
    }
}

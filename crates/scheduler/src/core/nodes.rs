//! All nodes by slot, each with a revision.
//!
//! In: changes of nodes. Out: the nodes, and a revision that no two states of a slot share. Never: a change that leaves
//! the revision as it was: there is no other way to a node that can be changed.

use std::ops::{Deref, Index, IndexMut};

use crate::node::Node;

/// The nodes.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    nodes: Vec<Node>,
    revisions: Vec<u64>,
    last: u64,
}

impl Nodes {
    /// Adds a node; returns its slot.
    pub(super) fn push(&mut self, node: Node) -> usize {
        self.last += 1;
        self.nodes.push(node);
        self.revisions.push(self.last);
        self.nodes.len() - 1
    }

    /// The revision of a slot, at least 1.
    pub(super) fn revision(&self, slot: usize) -> u64 {
        self.revisions[slot]
    }

    /// Gives a slot another revision: what is said of the node depends on the time, and that has come.
    pub(super) fn touch(&mut self, slot: usize) {
        self.last += 1;
        self.revisions[slot] = self.last;
    }
}

impl Deref for Nodes {
    type Target = [Node];

    fn deref(&self) -> &[Node] {
        &self.nodes
    }
}

impl Index<usize> for Nodes {
    type Output = Node;

    fn index(&self, slot: usize) -> &Node {
        &self.nodes[slot]
    }
}

impl IndexMut<usize> for Nodes {
    fn index_mut(&mut self, slot: usize) -> &mut Node {
        self.touch(slot);
        &mut self.nodes[slot]
    }
}

//! Node groups and the pools they stand for.
//!
//! In: a NUMAResourcesOperator's node groups, the cluster's pools. Out: groups with their pools; what is wrong with them. Never: a call.

//! Builds the page-local layout: which vectors share a page, and which pages a page links to.
//!
//! The graph over vectors is grown as for any layout. A page then gets the links of its vectors, nearest
//! first, but only one link to each target page: a search that follows it scores the codes of all vectors of
//! that page.

use super::places::Places;
use super::section::GRAPH_NAME;
use crate::error::IndexError;
use crate::format::appender::Appender;
use crate::format::links::encoded_bits;
use crate::format::local::LocalLayout;
use crate::format::manifest::FileEntry;
use crate::partition::space::Space;
use crate::proximity::adjacency::Adjacency;
use crate::query::visited::VisitedSet;
use bathyal_store::Draft;
use bathyal_vectors::progress::Progress;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Pages between two checks for cancellation.
const CHECK_EVERY: usize = 64;
/// Parent of a page that has not been reached.
const UNREACHED: u32 = u32::MAX;

/// The layout, and the place of each vector in it.
pub(crate) struct LocalPlacement {
    pub(crate) layout: LocalLayout,
    pub(crate) order: Places,
}

/// The links of each page, as places of vectors; the most useful first.
pub(crate) type PageLinks = Vec<Vec<u32>>;

impl LocalPlacement {
    /// Returns the bytes of a placement of `count` vectors and of the links of its pages.
    pub(crate) fn planned_bytes(layout: &LocalLayout, count: u64) -> u64 {
        // A link takes at least a byte on its page, and four in memory. Each list has a header, and `connect`
        // needs some bytes for each page.
        Places::planned_bytes(count) + u64::from(layout.pages()) * (4 * layout.link_bits() as u64 / 8 + 32)
    }

    /// Orders all vectors so that near ones share pages.
    pub(crate) fn new(
        space: &Space,
        layout: LocalLayout,
        seed: u64,
        threads: usize,
        progress: &dyn Progress,
    ) -> Result<LocalPlacement, IndexError> {
        let count = space.count();
        let order = Places::new(space, count, layout.records(), seed, threads, progress)?;
        Ok(LocalPlacement { layout, order })
    }

    /// Returns the place of vector `id`.
    pub(crate) fn place_of(&self, id: u32) -> u32 {
        self.order.place_of(id)
    }

    /// Returns the ids of the vectors of `page`.
    fn page_ids(&self, page: u32) -> &[u32] {
        let places = self.layout.places(page);
        &self.order.ids[places.start as usize..places.end as usize]
    }

    /// Chooses the links of all pages. Every page can then be reached from the page of the vector `entry`.
    pub(crate) fn links(
        &self,
        graph: &Adjacency,
        entry: u32,
        threads: usize,
        progress: &dyn Progress,
    ) -> Result<PageLinks, IndexError> {
        let pages = self.layout.pages() as usize;
        progress.stage("linking pages", pages as u64);
        let mut links: PageLinks = vec![Vec::new(); pages];
        let next = AtomicUsize::new(0);
        let parts = Mutex::new(links.chunks_mut(CHECK_EVERY));
        std::thread::scope(|scope| {
            for _ in 0..threads.clamp(1, pages) {
                scope.spawn(|| {
                    let mut chooser = LinkChooser::new(self, graph);
                    loop {
                        // The lock makes sure that each part gets its own number.
                        let numbered_part = parts.lock().ok().and_then(|mut parts| {
                            parts.next().map(|part| (next.fetch_add(CHECK_EVERY, Ordering::Relaxed), part))
                        });
                        let Some((first, part)) = numbered_part.filter(|_| !progress.cancelled()) else {
                            return;
                        };
                        for (i, slot) in part.iter_mut().enumerate() {
                            *slot = chooser.choose((first + i) as u32);
                        }
                        progress.advance(first as u64);
                    }
                });
            }
        });
        if progress.cancelled() {
            return Err(IndexError::Cancelled);
        }
        progress.advance(pages as u64);
        let first = self.layout.page_of(self.place_of(entry));
        connect(&self.layout, &mut links, first)
            .ok_or_else(|| IndexError::Internal("no page has room for a link".into()))?;
        Ok(links)
    }

    /// Writes the pages.
    pub(crate) fn write(
        &self,
        directory: &dyn Draft,
        space: &Space,
        links: &PageLinks,
        progress: &dyn Progress,
    ) -> Result<FileEntry, IndexError> {
        progress.stage("writing graph", links.len() as u64);
        let mut file = Appender::create(directory, GRAPH_NAME)?;
        let mut pages = vec![0_u8; CHECK_EVERY * self.layout.page_bytes()];
        for (part, lists) in links.chunks(CHECK_EVERY).enumerate() {
            if progress.cancelled() {
                return Err(IndexError::Cancelled);
            }
            for (i, (out, list)) in pages.chunks_exact_mut(self.layout.page_bytes()).zip(lists).enumerate() {
                let page = (part * CHECK_EVERY + i) as u32;
                let ids = self.page_ids(page);
                self.layout.encode(out, page, ids, ids.iter().map(|id| space.row(*id)), &sorted(list));
            }
            file.append(&pages[..lists.len() * self.layout.page_bytes()])?;
            progress.advance((part * CHECK_EVERY + lists.len()) as u64);
        }
        file.finish()
    }
}

/// The state of a thread that chooses links of pages.
struct LinkChooser<'a> {
    placement: &'a LocalPlacement,
    graph: &'a Adjacency,
    seen: VisitedSet,
    /// Neighbours of the vectors of the current page, one vector after the other.
    neighbors: Vec<u32>,
    /// The end of each vector's neighbours in `neighbors`.
    ends: Vec<usize>,
}

impl<'a> LinkChooser<'a> {
    fn new(placement: &'a LocalPlacement, graph: &'a Adjacency) -> LinkChooser<'a> {
        LinkChooser { placement, graph, seen: VisitedSet::new(1024), neighbors: Vec::new(), ends: Vec::new() }
    }

    /// Returns the links of `page`: the nearest neighbour of each of its vectors, then the second of each,
    /// and so on, until the page is full.
    fn choose(&mut self, page: u32) -> Vec<u32> {
        let layout = &self.placement.layout;
        self.neighbors.clear();
        self.ends.clear();
        for id in self.placement.page_ids(page) {
            self.neighbors.extend(self.graph.neighbors(*id));
            self.ends.push(self.neighbors.len());
        }
        self.seen.clear();
        self.seen.insert(page);
        let mut links = Vec::new();
        let longest = self.neighbors.len();
        for rank in 0..longest {
            let mut start = 0;
            let mut exhausted = true;
            for &end in &self.ends {
                if let Some(neighbor) = self.neighbors[start..end].get(rank) {
                    exhausted = false;
                    let place = self.placement.place_of(*neighbor);
                    if self.seen.insert(layout.page_of(place)) {
                        links.push(place);
                    }
                }
                start = end;
            }
            if exhausted {
                break;
            }
        }
        let fitting = fitting_links(layout, &links);
        links.truncate(fitting);
        links
    }
}

fn sorted(links: &[u32]) -> Vec<u32> {
    let mut sorted = links.to_vec();
    sorted.sort_unstable();
    sorted
}

fn fits(layout: &LocalLayout, links: &[u32]) -> bool {
    encoded_bits(&sorted(links)).0 <= layout.link_bits()
}

/// Returns the number of leading `links` that fit on a page.
fn fitting_links(layout: &LocalLayout, links: &[u32]) -> usize {
    if fits(layout, links) {
        return links.len();
    }
    let (mut enough, mut too_many) = (0, links.len());
    while too_many - enough > 1 {
        let middle = enough.midpoint(too_many);
        if fits(layout, &links[..middle]) { enough = middle } else { too_many = middle }
    }
    enough
}

/// The pages that have been reached so far, as a tree.
struct ReachedPages<'a> {
    layout: &'a LocalLayout,
    /// The page from which each page was reached first.
    parent: Vec<u32>,
    /// The reached pages, in the order in which they were reached.
    order: Vec<u32>,
}

impl ReachedPages<'_> {
    /// Adds page `start` as a child of `parent`, and then every page that can be reached from it.
    fn extend(&mut self, links: &PageLinks, start: u32, parent: u32) {
        let mut next = self.order.len();
        self.parent[start as usize] = parent;
        self.order.push(start);
        while next < self.order.len() {
            let page = self.order[next];
            next += 1;
            for link in &links[page as usize] {
                let target = self.layout.page_of(*link);
                if self.parent[target as usize] == UNREACHED {
                    self.parent[target as usize] = page;
                    self.order.push(target);
                }
            }
        }
    }

    /// Adds a link from the page `anchor` to the first vector of `page`. If the page is full, the link
    /// replaces links that are not edges of the tree. Returns false if `anchor` has not been reached, or if
    /// even then the link does not fit.
    fn attach(&self, links: &mut PageLinks, anchor: u32, page: u32) -> bool {
        if self.parent[anchor as usize] == UNREACHED {
            return false;
        }
        let list = &mut links[anchor as usize];
        let before = list.clone();
        list.insert(0, self.layout.places(page).start);
        while !fits(self.layout, list) {
            let spare =
                list[1..].iter().rposition(|link| self.parent[self.layout.page_of(*link) as usize] != anchor);
            match spare {
                Some(at) => drop(list.remove(at + 1)),
                None => {
                    *list = before;
                    return false;
                }
            }
        }
        true
    }
}

/// Adds links until every page can be reached from page `first`. An unreachable page gets a link from a page
/// that it links to, which is near it, or else from any page with room. Returns `None` if no page has room.
fn connect(layout: &LocalLayout, links: &mut PageLinks, first: u32) -> Option<()> {
    let pages = layout.pages();
    let mut tree = ReachedPages {
        layout,
        parent: vec![UNREACHED; pages as usize],
        order: Vec::with_capacity(pages as usize),
    };
    tree.extend(links, first, first);
    for page in 0..pages {
        if tree.parent[page as usize] != UNREACHED {
            continue;
        }
        let near: Vec<u32> = links[page as usize].iter().map(|link| layout.page_of(*link)).collect();
        let mut anchors = near.into_iter().chain(tree.order.iter().rev().copied());
        let anchor = anchors.find(|anchor| tree.attach(links, *anchor, page))?;
        tree.extend(links, page, anchor);
    }
    Some(())
}

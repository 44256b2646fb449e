//! Work on many nodes, of which only some may be unavailable at once.

use std::num::NonZeroUsize;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

/// The result of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeOutcome<T, E> {
    Done(T),
    Failed(E),
    /// Not begun, because a node before failed.
    Untouched,
}

/// Does `work` for each node in order, for at most `max_unavailable` of them at once. After the
/// first failure no further node is begun; those under way are waited for.
pub async fn roll<N, T, E, F>(
    nodes: Vec<N>,
    max_unavailable: NonZeroUsize,
    work: impl Fn(N) -> F,
) -> Vec<NodeOutcome<T, E>>
where
    F: Future<Output = Result<T, E>>,
{
    let mut outcomes: Vec<_> = nodes.iter().map(|_| NodeOutcome::Untouched).collect();
    let mut waiting = nodes.into_iter().enumerate();
    let mut running = FuturesUnordered::new();
    let begin = |(index, node)| {
        let work = work(node);
        async move { (index, work.await) }
    };
    running.extend(waiting.by_ref().take(max_unavailable.get()).map(begin));
    let mut has_failed = false;
    while let Some((index, result)) = running.next().await {
        outcomes[index] = match result {
            Ok(done) => NodeOutcome::Done(done),
            Err(error) => {
                has_failed = true;
                NodeOutcome::Failed(error)
            }
        };
        if !has_failed {
            running.extend(waiting.next().map(begin));
        }
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    async fn run(nodes: usize, max: usize, fails_at: Option<usize>) -> (Vec<char>, usize) {
        let (running, most) = (Cell::new(0), Cell::new(0));
        let work = |node: usize| {
            let (running, most) = (&running, &most);
            async move {
                running.set(running.get() + 1);
                most.set(most.get().max(running.get()));
                tokio::task::yield_now().await;
                running.set(running.get() - 1);
                if fails_at == Some(node) {
                    Err(())
                } else {
                    Ok(())
                }
            }
        };
        let max = NonZeroUsize::new(max).unwrap();
        let outcomes = roll((0..nodes).collect(), max, work).await;
        let outcomes = outcomes.iter().map(|outcome| match outcome {
            NodeOutcome::Done(()) => 'd',
            NodeOutcome::Failed(()) => 'f',
            NodeOutcome::Untouched => '-',
        });
        (outcomes.collect(), most.get())
    }

    #[tokio::test]
    async fn no_more_nodes_than_allowed_are_down_at_once() {
        assert_eq!(run(4, 1, None).await, (vec!['d'; 4], 1));
        assert_eq!(run(5, 2, None).await, (vec!['d'; 5], 2));
        assert_eq!(run(2, 9, None).await, (vec!['d'; 2], 2));
    }

    #[tokio::test]
    async fn the_first_failure_leaves_the_rest_untouched() {
        assert_eq!(run(4, 1, Some(1)).await.0, ['d', 'f', '-', '-']);
        assert_eq!(run(4, 2, Some(0)).await.0[0], 'f');
        assert_eq!(run(4, 2, Some(0)).await.0[3], '-');
    }
}

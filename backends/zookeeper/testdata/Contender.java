import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderLatchListener;
import org.apache.curator.retry.RetryOneTime;

/**
 * Contenders as in Simba's JVM backend: each is a LeaderLatch on /simba/MUTEX.
 * Usage: Contender SERVERS. The program prints READY when it is connected to ZooKeeper.
 * Then each line of stdin is a command, and each line of stdout is a report:
 *
 *   start MUTEX ID     starts the latch of contender ID. Reports LEADER ID when the latch becomes the
 *                      leader, and NOT_LEADER ID when it stops being the leader
 *   close ID           closes the latch. Reports NOT_LEADER ID if it was the leader, then CLOSED ID
 *   token ID           reports TOKEN ID CZXID: the id of the transaction that created the latch's node
 *   leader ID          reports OWNER ID LEADER: the id of the leader that the latch knows ("" = none)
 *   participants ID    reports PARTICIPANTS ID A,B,...: the ids of all contenders, in order
 */
public class Contender {
    public static void main(String[] args) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], 10000, 5000, new RetryOneTime(100));
        client.start();
        client.blockUntilConnected();
        say("READY");
        Map<String, LeaderLatch> latches = new HashMap<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "start": {
                    String id = words[2];
                    LeaderLatch latch = new LeaderLatch(client, "/simba/" + words[1], id);
                    latch.addListener(new LeaderLatchListener() {
                        @Override public void isLeader() { say("LEADER " + id); }
                        @Override public void notLeader() { say("NOT_LEADER " + id); }
                    });
                    latches.put(id, latch);
                    latch.start();
                    break;
                }
                case "close":
                    latches.remove(words[1]).close(LeaderLatch.CloseMode.NOTIFY_LEADER);
                    say("CLOSED " + words[1]);
                    break;
                case "token":
                    say("TOKEN " + words[1] + " " + client.checkExists().forPath(latches.get(words[1]).getOurPath()).getCzxid());
                    break;
                case "leader":
                    say("OWNER " + words[1] + " " + latches.get(words[1]).getLeader().getId());
                    break;
                case "participants": {
                    StringBuilder ids = new StringBuilder();
                    latches.get(words[1]).getParticipants().forEach(p -> ids.append(ids.length() == 0 ? "" : ",").append(p.getId()));
                    say("PARTICIPANTS " + words[1] + " " + ids);
                    break;
                }
                default:
                    say("UNKNOWN " + line);
            }
        }
        client.close();
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}

package io.github.simbaresp;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.StringWriter;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.MatchResult;
import java.util.regex.Pattern;
import javax.tools.JavaCompiler;
import javax.tools.SimpleJavaFileObject;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class ReadmeTest {
    @Test
    void examplesCompile(@TempDir Path out) throws Exception {
        String readme = Files.readString(Path.of("..", "README.md"));
        List<String> examples = new ArrayList<>(Pattern.compile("```java\n(.*?)```", Pattern.DOTALL).matcher(readme)
            .results().map((MatchResult m) -> m.group(1)).toList());
        assertTrue(examples.size() > 6);
        String[] first = examples.remove(0).split("\n\n"); // the imports, and the client
        StringBuilder source = new StringBuilder(first[0] + "\nimport java.util.concurrent.*;\n"
            + "class Examples {\n void write(long token) {}\n void first() {" + first[1] + "}\n");
        for (int i = 0; i < examples.size(); i++) {
            source.append("void example" + i + "(SimbaClient client, long token) throws Exception {\n" + examples.get(i) + "}\n");
        }
        StringWriter errors = new StringWriter();
        JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
        boolean compiles = compiler.getTask(errors, null, null,
            List.of("-d", out.toString(), "-cp", System.getProperty("java.class.path")), null,
            List.of(new SimpleJavaFileObject(URI.create("string:///Examples.java"), SimpleJavaFileObject.Kind.SOURCE) {
                @Override
                public CharSequence getCharContent(boolean ignoreEncodingErrors) {
                    return source.append("}");
                }
            })).call();
        assertEquals("", errors.toString());
        assertTrue(compiles);
    }
}

// Runs llama.cpp on the processor through node-llama-cpp, which must lie in the working folder. Standard input is
//   {"model": path, "texts": [string], "prompts": [[id]], "tokens": n}
// and the file named by the first argument gets
//   {"ids": [[id]], "answers": [{"ids": [id], "confidence": [probability of each]}]}
// where ids are those of the texts (special tokens are parsed) and an answer is greedy, its end-of-answer id included.
import {readFileSync, writeFileSync} from "node:fs";
import {createRequire} from "node:module";
import {join} from "node:path";
import {pathToFileURL} from "node:url";

const require = createRequire(join(process.cwd(), "package.json"));
const {getLlama, LlamaLogLevel} = await import(pathToFileURL(require.resolve("node-llama-cpp")));

// Its threads wait for each other by spinning, which takes very long where other programs want the cores too.
const threads = Number(process.env.LLAMA_THREADS ?? 2);
const request = JSON.parse(readFileSync(0, "utf8"));
const llama = await getLlama({gpu: false, maxThreads: threads, build: "never", logLevel: LlamaLogLevel.error});
const model = await llama.loadModel({modelPath: request.model});
const ids = request.texts.map((text) => model.tokenize(text, true));

const context = await model.createContext({contextSize: 1024, threads});
const sequence = context.getSequence();
const answers = [];
for (const prompt of request.prompts) {
    await sequence.clearHistory();
    const answer = {ids: [], confidence: []};
    for await (const step of sequence.evaluateWithMetadata(prompt, {confidence: true}, {temperature: 0, yieldEogToken: true})) {
        answer.ids.push(step.token);
        answer.confidence.push(step.confidence);
        if (answer.ids.length >= request.tokens || model.isEogToken(step.token))
            break;
    }
    answers.push(answer);
}
writeFileSync(process.argv[2], JSON.stringify({ids, answers}));
process.exit(0);
